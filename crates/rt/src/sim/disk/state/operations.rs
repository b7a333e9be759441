//! What nodes do with disks: each operation takes its time, and a crash may come before its end.

use super::*;

impl World {
    /// The disk of a node, if its incarnation still lives.
    pub(in crate::sim::disk) fn disk(&mut self, node: u32, incarnation: u32) -> io::Result<&mut Disk> {
        if !self.machines.lives(node, incarnation) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the node has crashed"));
        }
        Ok(self.disk_of(node))
    }

    /// The disk that a node uses: its own, or another one's.
    pub(in crate::sim) fn disk_of(&mut self, node: u32) -> &mut Disk {
        let at = self.machines.nodes[node as usize].disk_at;
        &mut self.machines.nodes[at as usize].disk
    }

    /// From now on `node` uses the disk of `owner`.
    pub(in crate::sim) fn share_disk(&mut self, node: u32, owner: u32) {
        let at = self.machines.nodes[owner as usize].disk_at;
        self.machines.nodes[node as usize].disk_at = at;
        self.machines.nodes[at as usize].disk.is_shared = true;
    }

    /// Whether another node that is up uses the same disk.
    pub(super) fn is_disk_used_besides(&self, node: u32) -> bool {
        let at = self.machines.nodes[node as usize].disk_at;
        let others = self.machines.nodes.iter().enumerate().filter(|(other, _)| *other != node as usize);
        others.into_iter().any(|(_, other)| other.disk_at == at && other.power == Power::Up)
    }

    /// When an operation on names that begins now is done.
    pub(in crate::sim::disk) fn name_done_at(&mut self, node: u32) -> u64 {
        self.machines.note(Kind::Name, node, 0);
        let name = self.machines.options.disk.name;
        self.machines.clock.now() + name.draw(&mut self.disk_of(node).rng)
    }

    /// When a look-up that begins now is done; `None` if it takes no time.
    pub(in crate::sim::disk) fn look_up_done_at(&mut self, node: u32) -> Option<u64> {
        let look_up = self.machines.options.disk.look_up;
        (look_up.max_ns > 0).then(|| self.machines.clock.now() + look_up.draw(&mut self.disk_of(node).rng))
    }

    /// Whether memory is so short after a look-up that took time that all that was looked up before is forgotten.
    pub(in crate::sim::disk) fn forgets(&mut self, node: u32) -> bool {
        let forgets = self.machines.options.disk.forgets;
        forgets.strikes(&mut self.disk_of(node).rng)
    }

    /// Whether a look-up fails.
    pub(in crate::sim::disk) fn look_up(&mut self, node: u32) -> io::Result<()> {
        let fails = self.machines.options.disk.look_up_fails;
        if fails.strikes(&mut self.disk_of(node).rng) {
            Err(broken("the disk does not read"))
        } else {
            Ok(())
        }
    }

    /// When a read of `len` bytes that begins now is done.
    pub(in crate::sim::disk) fn read_done_at(&mut self, node: u32, offset: u64, len: usize) -> u64 {
        let stats = self.machines.stats(node);
        stats.reads += 1;
        stats.bytes_read += len as u64;
        self.machines.note(Kind::Read, node, offset ^ (len as u64).rotate_left(40));
        let (options, now) = (self.machines.options.disk, self.machines.clock.now());
        let disk = self.disk_of(node);
        let latency = options.read.draw(&mut disk.rng);
        disk.done_at(now, latency, len as u64, options.bytes_per_second)
    }

    /// Writes here and now; whether it fails is decided here.
    pub(in crate::sim::disk) fn write(
        &mut self,
        node: u32,
        file: u64,
        offset: u64,
        slices: &[Bytes],
    ) -> io::Result<()> {
        let len: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let stats = self.machines.stats(node);
        stats.writes += 1;
        stats.bytes_written += len;
        self.machines.note(Kind::Write, node, offset ^ len.rotate_left(40));
        self.check_write_fails(node)?;
        let has_heads = self.machines.options.disk.seek_ns > 0;
        let disk = self.disk_of(node);
        disk.check_space(file, offset, len)?;
        if has_heads && len < LARGE_BYTES {
            disk.heads.remember(file, offset, len);
        }
        disk.change(node, file, |image| image.write(offset, slices))?;
        self.count_step(node, Step::DiskWrite);
        Ok(())
    }

    pub(in crate::sim::disk) fn allocate(
        &mut self,
        node: u32,
        file: u64,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.check_write_fails(node)?;
        let disk = self.disk_of(node);
        disk.check_space(file, offset, len)?;
        disk.change(node, file, |image| image.allocate(offset, len))
    }

    pub(super) fn check_write_fails(&mut self, node: u32) -> io::Result<()> {
        let write_fails = self.machines.options.disk.write_fails;
        let disk = self.disk_of(node);
        if disk.writes_fail || write_fails.strikes(&mut disk.rng) {
            self.machines.note(Kind::WriteFailed, node, 0);
            return Err(broken("the write failed"));
        }
        Ok(())
    }

    pub(super) fn count_pieces(&mut self, node: u32, written: Written) {
        let stats = self.machines.stats(node);
        stats.pieces += written.pieces;
        stats.pieces_small += written.small;
        stats.piece_bytes += written.bytes;
        stats.seeks += written.seeks;
    }

    /// Begins something that takes time and goes on by itself.
    pub(in crate::sim::disk) fn begin_disk(
        &mut self,
        node: u32,
        incarnation: u32,
        request: Request,
    ) -> io::Result<Key> {
        self.disk(node, incarnation)?;
        let is_sync = !matches!(request, Request::Write { .. });
        let sync = if is_sync { self.count_sync(node) } else { 0 };
        if self.cut_power_at(node, sync, Moment::Before) || is_sync && self.count_step(node, Step::Sync) {
            return Err(broken("the power was cut"));
        }
        let (options, now) = (self.machines.options.disk, self.machines.clock.now());
        let disk = self.disk_of(node);
        let mut bytes = 0;
        let written;
        let (work, latency) = match request {
            Request::SyncFile { file } => {
                let point = disk.file_seen(node, file)?.image.begin_sync();
                written = disk.heads.flush(file);
                (Work::SyncFile { file, point }, options.sync)
            }
            Request::SyncDir { dir } => {
                let end = disk.dir_seen(node, dir)?.begin_sync();
                written = disk.heads.names();
                (Work::SyncDir { dir, end }, options.sync)
            }
            Request::Write { file, offset, slices } => {
                bytes = slices.iter().map(|slice| slice.len() as u64).sum();
                written = disk.heads.write(file, offset, bytes);
                (Work::Write { file, offset, slices }, options.write)
            }
        };
        let latency = latency.draw(&mut disk.rng);
        let moving = if options.seek_ns > 0 {
            bytes = written.bytes;
            written.seeks * options.seek_ns
        } else {
            0
        };
        if moving > 0 {
            disk.free_at = disk.free_at.max(now) + moving;
        }
        let done_at = disk.done_at(now, latency, bytes, options.bytes_per_second);
        if options.seek_ns > 0 {
            self.count_pieces(node, written);
        }
        let operation =
            Operation { node, sync, work: Some(work), waiter: None, abandoned: false, result: None };
        let key = self.disk_operations.insert(operation);
        self.disk_of(node).operations.insert(key);
        self.machines.clock.schedule(done_at, Event::Disk(key));
        Ok(key)
    }

    pub(in crate::sim::disk) fn poll_disk(&mut self, key: Key, waker: &Waker) -> Poll<io::Result<()>> {
        let Some(operation) = self.disk_operations.get_mut(key) else {
            return Poll::Ready(Err(broken("the node has crashed")));
        };
        match operation.result.take() {
            Some(result) => {
                self.disk_operations.remove(key);
                Poll::Ready(result)
            }
            None => {
                operation.waiter = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Nobody waits any more; what is under way goes on.
    pub(in crate::sim::disk) fn abandon_disk(&mut self, key: Key) {
        if let Some(operation) = self.disk_operations.get_mut(key) {
            operation.abandoned = true;
            if operation.result.is_some() {
                self.disk_operations.remove(key);
            }
        }
    }

    pub(in crate::sim) fn disk_done(&mut self, key: Key) {
        let Some(operation) = self.disk_operations.get_mut(key) else { return };
        let (node, sync) = (operation.node, operation.sync);
        if self.cut_power_at(node, sync, Moment::During) {
            return;
        }
        let Some(operation) = self.disk_operations.get_mut(key) else { return };
        let Some(work) = operation.work.take() else { return };
        self.machines.stats(node).events += 1;
        self.disk_of(node).operations.remove(&key);
        let result = match work {
            Work::Write { file, offset, slices } => self.write(node, file, offset, &slices),
            work => self.end_sync(node, work),
        };
        if self.cut_power_at(node, sync, Moment::After) {
            return;
        }
        // The node may have stopped with this very write.
        let Some(operation) = self.disk_operations.get_mut(key) else { return };
        operation.result = Some(result);
        let waiter = operation.waiter.take();
        if operation.abandoned {
            self.disk_operations.remove(key);
        }
        self.machines.wake(waiter);
    }

    pub(super) fn end_sync(&mut self, node: u32, sync: Work) -> io::Result<()> {
        self.machines.stats(node).syncs += 1;
        let options = self.machines.options.disk;
        let disk = self.disk_of(node);
        let fails = disk.syncs_fail || options.sync_fails.strikes(&mut disk.rng);
        let lies = options.sync_lies.strikes(&mut disk.rng);
        match sync {
            Work::SyncFile { file, .. } if lies => {
                if let Some(state) = disk.files.get_mut(&file) {
                    state.image.forget_sync();
                }
            }
            Work::SyncDir { .. } if lies => {}
            // A file may have lost its last name and handle meanwhile.
            Work::SyncFile { file, point } => {
                if let Some(state) = disk.files.get_mut(&file) {
                    if fails {
                        state.image.fail_sync(point, &mut disk.rng);
                    } else {
                        state.image.end_sync(point);
                    }
                }
            }
            Work::SyncDir { dir, end } if !fails => {
                for entry in disk.dir(dir)?.end_sync(end) {
                    if let Entry::File(number) = entry {
                        disk.settle(number);
                    }
                }
            }
            _ => {}
        }
        if fails {
            self.machines.stats(node).syncs_failed += 1;
            self.machines.note(Kind::SyncFailed, node, 0);
            return Err(broken("the sync failed"));
        }
        self.machines.note(Kind::Sync, node, 0);
        Ok(())
    }

    /// A handle of a file is gone.
    pub(in crate::sim::disk) fn close_file(&mut self, node: u32, incarnation: u32, file: u64) {
        if self.machines.nodes[node as usize].incarnation == incarnation {
            self.disk_of(node).close(node, file);
        }
    }

    /// The node stops. When power fails, writes under way are done in part; on a disk that others use they may also come
    /// later, as those do that a network or a storage array still has.
    pub(in crate::sim) fn disk_stop(&mut self, node: u32, power: Power) {
        if power != Power::Down {
            return self.disk_of(node).close_all(node);
        }
        let is_shared = self.is_disk_used_besides(node);
        for key in std::mem::take(&mut self.disk_of(node).operations) {
            let Some(operation) = self.disk_operations.get_mut(key) else { continue };
            if is_shared && operation.node != node {
                self.disk_of(node).operations.insert(key);
                continue;
            }
            let operation = self.disk_operations.remove(key).expect("it was just seen");
            if let Some(Work::Write { file, offset, slices }) = operation.work {
                if is_shared && self.disk_of(node).rng.one_in(2) {
                    self.write_late(node, Work::Write { file, offset, slices });
                } else {
                    self.land(node, file, offset, &slices);
                }
            }
        }
        let disk = self.disk_of(node);
        let lost = if is_shared { disk.crash_of(node) } else { disk.crash() };
        self.machines.stats(node).sectors_lost += lost;
        self.machines.note(Kind::DiskCrash, node, lost);
    }

    /// A write that nobody waits for any more arrives.
    pub(super) fn land(&mut self, node: u32, file: u64, offset: u64, slices: &[Bytes]) {
        let disk = self.disk_of(node);
        let len = slices.iter().map(|slice| slice.len() as u64).sum();
        if disk.check_space(file, offset, len).is_ok() {
            // The file is there: it has the space.
            let _ = disk.change(node, file, |image| image.write(offset, slices));
        }
    }

    pub(super) fn write_late(&mut self, node: u32, work: Work) {
        let delay = LATE.draw(&mut self.disk_of(node).rng);
        let operation =
            Operation { node, sync: 0, work: Some(work), waiter: None, abandoned: true, result: None };
        let key = self.disk_operations.insert(operation);
        self.disk_of(node).operations.insert(key);
        self.machines.clock.schedule(self.machines.clock.now() + delay, Event::Disk(key));
        self.machines.stats(node).writes_late += 1;
    }

    /// The node starts again: what its former incarnation wrote has arrived by then.
    pub(in crate::sim) fn disk_start(&mut self, node: u32) {
        for key in self.disk_of(node).operations.clone() {
            let Some(operation) = self.disk_operations.get(key) else { continue };
            if operation.node == node && operation.abandoned {
                let operation = self.disk_operations.remove(key).expect("it was just seen");
                self.disk_of(node).operations.remove(&key);
                if let Some(Work::Write { file, offset, slices }) = operation.work {
                    self.land(node, file, offset, &slices);
                }
            }
        }
    }
}
