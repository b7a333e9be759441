//! A client at work: what it does, and that it is noted.

use super::*;

/// One client at work.
pub(super) struct Player {
    number: u32,
    rt: Rt,
    pub(super) client: Arc<Client>,
    /// Half of the clients have files mapped.
    kernel: Option<Arc<Kernel>>,
    pub(super) world: World,
    rng: Rng,
    handles: Vec<Handle>,
    log: Handle,
    appended: u32,
    looked_up: u32,
    size_seen: u64,
}

impl Player {
    pub(super) async fn start(
        number: u32,
        rt: Rt,
        client: Arc<Client>,
        world: World,
        mut rng: Rng,
        flags: OpenFlags,
    ) -> Player {
        let kernel = rng.one_in(2).then(|| Kernel::above(&client));
        let _doing = world.progress.begin(&node(number as usize), "open every file".into());
        let mut handles = Vec::new();
        for file in &world.files {
            handles.push(open(&client, *file, flags).await);
        }
        let log = open(&client, world.log, if flags.write { APPEND } else { flags }).await;
        Player {
            number,
            rt,
            client,
            kernel,
            world,
            rng,
            handles,
            log,
            appended: 0,
            looked_up: 0,
            size_seen: 0,
        }
    }

    pub(super) async fn step(&mut self) {
        if self.rng.one_in(3) {
            self.rt.sleep(Duration::from_nanos(self.rng.below(20_000_000))).await;
        }
        match self.rng.below(100) {
            0..15 => self.write().await,
            15..35 => self.read().await,
            35..38 => self.reopen().await,
            38..41 => {
                let _doing = self.doing("sync everything".into());
                self.client.sync_all().await.expect("what is healthy can be synced");
            }
            41..46 => self.append().await,
            46..50 => self.look_at_log().await,
            50..56 => self.chmod().await,
            56..66 => self.look_at_mode().await,
            66 => self.migrate().await,
            _ => self.name().await,
        }
    }

    /// A step of one who only looks, nearly always at one thing: so it need not ask anybody for long, wherever it is.
    pub(super) async fn look(&mut self) {
        self.rt.sleep(Duration::from_nanos(self.rng.below(4_000_000_000))).await;
        if self.rng.one_in(50) {
            return self.read().await;
        }
        match self.number % 4 {
            0 => self.read_range_of(0, self.number as usize / 4 % RANGES.len()).await,
            1 => self.look_at_log().await,
            2 => {
                let _doing = self.doing(format!("stat f1 {}", self.world.files[1]));
                look_at_mode(&self.client, &self.world, 1, By::Fid).await;
            }
            _ if self.looked_up < NAME_LOOKS_MAX => {
                let name = (0, 0);
                if !self.begin_name(name) {
                    return;
                }
                self.looked_up += 1;
                look_up(&self.client, &self.world, name).await;
            }
            _ => self.look_at_mode().await,
        }
    }

    pub(super) fn doing(&self, what: String) -> Doing {
        self.world.progress.begin(&node(self.number as usize), what)
    }

    fn start_op(&self) -> u64 {
        self.world.history.lock().now()
    }

    async fn write(&mut self) {
        let (file, range) = (self.any_file(), self.rng.below(RANGES.len() as u64) as usize);
        let (offset, len) = RANGES[range];
        let (tag, start) = {
            let mut history = self.world.history.lock();
            let tag = history.tags.entry((file, range)).or_default();
            if len == 1 && *tag == BYTE_VALUES {
                return;
            }
            *tag += 1;
            (*tag as u64, history.now())
        };
        let data = fill(tag, len);
        let _doing = self.doing(format!("write f{file} {}: {len} bytes at {offset}", self.world.files[file]));
        self.write_bytes(file, offset, &data).await;
        let mut history = self.world.history.lock();
        let span = history.end(start);
        for (at, _) in pieces(range) {
            history.pieces.entry((file, range, at)).or_default().writes.insert(tag, span.clone());
        }
    }

    async fn read(&mut self) {
        let (file, range) = (self.any_file(), self.rng.below(RANGES.len() as u64) as usize);
        self.read_range_of(file, range).await;
    }

    async fn read_range_of(&mut self, file: usize, range: usize) {
        let (offset, len) = RANGES[range];
        let _doing = self.doing(format!("read f{file} {}: {len} bytes at {offset}", self.world.files[file]));
        let start = self.start_op();
        let data = self.read_bytes(file, offset, len).await;
        note_read(&self.world, (file, range), start, &data);
    }

    /// Through a mapping, if the client has one and each part of the range can be used in one moment; else past it.
    async fn write_bytes(&mut self, file: usize, offset: u64, data: &[u8]) {
        let (fid, handle, end) = (self.world.files[file], self.handles[file], offset + data.len() as u64);
        if let Some(kernel) = &self.kernel {
            if let Some(parts) = in_pages(offset, end).filter(|_| self.rng.one_in(2)) {
                for part in parts {
                    let bytes = &data[(part.start - offset) as usize..(part.end - offset) as usize];
                    kernel.map((fid, handle), &part, |page| page.copy_from_slice(bytes), Access::Write).await;
                }
                return;
            }
            kernel.drop_pages(fid, offset..end).await;
        }
        let written = self.client.files().write(handle, offset, data).await;
        assert_eq!(written, Ok(data.len() as u32), "write of {offset} to {end}");
    }

    async fn read_bytes(&mut self, file: usize, offset: u64, len: u64) -> Vec<u8> {
        let (fid, handle, end) = (self.world.files[file], self.handles[file], offset + len);
        if let Some(kernel) = &self.kernel {
            if let Some(parts) = in_pages(offset, end).filter(|_| self.rng.one_in(2)) {
                let mut data = Vec::new();
                for part in parts {
                    data.extend(kernel.map((fid, handle), &part, |page| page.to_vec(), Access::Read).await);
                }
                return data;
            }
            kernel.write_back(fid, offset..end).await;
        }
        self.client
            .files()
            .read(handle, offset, len as u32)
            .await
            .expect("what is healthy can be read")
            .concat()
    }

    async fn reopen(&mut self) {
        let file = self.any_file();
        let _doing = self.doing(format!("close and open f{file} {}", self.world.files[file]));
        if let Some(kernel) = &self.kernel {
            // A mapping keeps the file open: it is gone by now, and its pages are written back.
            kernel.write_back(self.world.files[file], 0..FILE_BYTES).await;
        }
        self.client.files().flush(self.handles[file]).await.expect("what is healthy can be flushed");
        self.client.files().release(self.handles[file]).await;
        self.handles[file] = self
            .client
            .files()
            .open(&root(), self.world.files[file], READ_WRITE)
            .await
            .expect("root may open");
    }

    async fn append(&mut self) {
        let key = (self.number, self.appended);
        self.appended += 1;
        let _doing = self.doing(format!("append to the log {}", self.world.log));
        let start = self.start_op();
        let record = log_record(key);
        // As a mount does: at once, if there is nothing to wait for.
        let done = match self.client.files().write_at_once(self.log, 0, &record) {
            Ok(Some(len)) => Ok(len),
            Ok(None) => self.client.files().write(self.log, 0, &record).await,
            Err(error) => Err(error),
        };
        assert_eq!(done, Ok(RECORD_BYTES as u32), "append {key:?}");
        let mut history = self.world.history.lock();
        let span = history.end(start);
        history.appends.insert(key, span);
    }

    async fn look_at_log(&mut self) {
        let _doing = self.doing(format!("stat the log {}", self.world.log));
        let start = self.start_op();
        let size = self.client.names().getattr(self.world.log).await.expect("the log is there").size;
        assert!(
            size >= self.size_seen,
            "client {}: the log shrank from {} to {size}",
            self.number,
            self.size_seen
        );
        self.size_seen = size;
        let mut history = self.world.history.lock();
        let span = history.end(start);
        tracing::debug!(size, ?span, "the log is so long");
        history.sizes.push((size, span));
    }

    async fn chmod(&mut self) {
        let file = self.any_file();
        let (mode, start) = {
            let mut history = self.world.history.lock();
            let mode = history.mode_tags.entry(file).or_default();
            if *mode == MODES {
                return;
            }
            *mode += 1;
            (*mode as u32, history.now())
        };
        let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
        let _doing = self.doing(format!("chmod f{file} {}", self.world.files[file]));
        self.client
            .files()
            .setattr(&root(), self.world.files[file], change, None)
            .await
            .expect("root may chmod");
        let mut history = self.world.history.lock();
        let span = history.end(start);
        history.modes.entry(file).or_default().writes.insert(u64::from(mode), span);
    }

    /// Moves the data of a file to other OSTs; or of the log.
    async fn migrate(&mut self) {
        let file = self.rng.below(FILES as u64 + 1) as usize;
        let fid = self.world.files.get(file).copied().unwrap_or(self.world.log);
        let hint = LayoutHint {
            stripe_count: 1 + self.rng.below(u64::from(OSTS)) as i32,
            stripe_size: STRIPE_BYTES as u32,
            parts: if self.rng.below(2) == 0 { composite() } else { Vec::new() },
            ..LayoutHint::default()
        };
        let _doing = self.doing(format!("migrate f{file} {fid}"));
        match self.client.migrate(&root(), fid, hint).await {
            // Others moved it at the same time, or power failed every time.
            Ok(()) | Err(Error::Refused(Code::Busy | Code::TryAgain)) => {}
            Err(error) => panic!("migrate f{file} {fid}: {error}"),
        }
    }

    async fn look_at_mode(&mut self) {
        let (file, by_name) = (self.any_file(), self.rng.one_in(2));
        let _doing = self.doing(format!("stat f{file} {}, by name: {by_name}", self.world.files[file]));
        look_at_mode(&self.client, &self.world, file, if by_name { By::Name } else { By::Fid }).await;
    }

    pub(super) async fn close_mappings(&self) {
        let Some(kernel) = &self.kernel else { return };
        for file in &self.world.files {
            kernel.drop_pages(*file, 0..FILE_BYTES).await;
        }
    }

    fn any_file(&mut self) -> usize {
        self.rng.below(FILES as u64) as usize
    }

    /// A name that is not used up, with one more operation counted.
    fn any_name(&mut self) -> Option<(usize, u64)> {
        let name = (self.rng.below(DIRS as u64) as usize, self.rng.below(NAMES));
        self.begin_name(name).then_some(name)
    }

    /// Counts one more operation of a name, if that is not used up.
    fn begin_name(&self, name: (usize, u64)) -> bool {
        let mut history = self.world.history.lock();
        let begun = history.begun.entry(name).or_default();
        // The last place is for the look at the end.
        let has_room = *begun + 1 < NAME_OPS_MAX;
        *begun += usize::from(has_room);
        has_room
    }

    async fn name(&mut self) {
        let Some(name) = self.any_name() else { return };
        match self.rng.below(100) {
            0..15 => self.create(name).await,
            15..20 => self.open_empty(name).await,
            20..35 => self.unlink(name).await,
            35..45 => self.rename(name).await,
            45..52 if self.world.links => self.link(name).await,
            _ => {
                let _doing = self.doing(format!("look up d{}/n{}", name.0, name.1));
                look_up(&self.client, &self.world, name).await;
            }
        }
    }

    fn note(&self, name: (usize, u64), effect: Effect, span: Span) {
        self.world.history.lock().names.entry(name).or_default().ops.push((effect, span));
    }

    async fn create(&mut self, (dir, name): (usize, u64)) {
        let flags = OpenFlags { exclusive: true, ..READ_WRITE };
        let _doing = self.doing(format!("create d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let made = self
            .client
            .files()
            .create(&root(), self.world.dirs[dir], text.as_bytes(), 0o100_644, flags)
            .await;
        let span = self.world.history.lock().end(start);
        match made.map(|(told, handle)| (told.fid, handle)) {
            Ok((fid, handle)) => {
                self.note((dir, name), Effect::Made(fid), span);
                self.client.files().release(handle).await;
            }
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::Exists), "create of {text}");
                self.note((dir, name), Effect::Present, span);
            }
        }
    }

    /// Opens what has the name, emptied, or makes it.
    async fn open_empty(&mut self, (dir, name): (usize, u64)) {
        let flags = OpenFlags { truncate: true, ..READ_WRITE };
        let _doing = self.doing(format!("open and empty d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let made = self
            .client
            .files()
            .create(&root(), self.world.dirs[dir], text.as_bytes(), 0o100_644, flags)
            .await;
        let span = self.world.history.lock().end(start);
        let (fid, size, handle) =
            made.map(|(told, handle)| (told.fid, told.size, handle)).expect("root may open or make");
        assert_eq!(size, 0, "{text} was emptied");
        self.note((dir, name), Effect::Opened(fid), span);
        self.client.files().release(handle).await;
    }

    async fn unlink(&mut self, (dir, name): (usize, u64)) {
        let _doing = self.doing(format!("unlink d{dir}/n{name}"));
        let start = self.start_op();
        let text = format!("n{name}");
        let done = self.client.names().unlink(&root(), self.world.dirs[dir], text.as_bytes()).await;
        let span = self.world.history.lock().end(start);
        let effect = match done {
            Ok(()) => Effect::Removed,
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::NotFound), "unlink of {text}");
                Effect::Seen(None)
            }
        };
        self.note((dir, name), effect, span);
    }

    async fn rename(&mut self, from: (usize, u64)) {
        let Some(to) = self.any_name().filter(|to| *to != from) else { return };
        let _doing = self.doing(format!("rename d{}/n{} to d{}/n{}", from.0, from.1, to.0, to.1));
        let start = self.start_op();
        let (old, new) = (format!("n{}", from.1), format!("n{}", to.1));
        let (old_dir, new_dir) = (self.world.dirs[from.0], self.world.dirs[to.0]);
        let done =
            self.client.names().rename(&root(), old_dir, old.as_bytes(), new_dir, new.as_bytes(), 0).await;
        let span = self.world.history.lock().end(start);
        match done {
            Ok(()) => {
                self.note(from, Effect::MovedAway, span.clone());
                self.note(to, Effect::MovedHere, span);
            }
            Err(error) => {
                assert_eq!(error, Error::Refused(Code::NotFound), "rename of {old} to {new}");
                self.note(from, Effect::Seen(None), span);
            }
        }
    }

    async fn link(&mut self, from: (usize, u64)) {
        let (old, old_dir) = (format!("n{}", from.1), self.world.dirs[from.0]);
        let looking = self.doing(format!("look up d{}/n{}", from.0, from.1));
        let found = self.client.names().lookup(&root(), old_dir, old.as_bytes()).await.map(|told| told.fid);
        drop(looking);
        let Ok(fid) = found else { return };
        let Some(to) = self.any_name() else { return };
        let (new, new_dir) = (format!("n{}", to.1), self.world.dirs[to.0]);
        let _doing = self.doing(format!("link {fid} to d{}/n{}", to.0, to.1));
        let start = self.start_op();
        let done = self.client.names().link(&root(), fid, new_dir, new.as_bytes()).await;
        let span = self.world.history.lock().end(start);
        match done {
            Ok(linked) => {
                assert_eq!(linked.fid, fid, "a link means the file");
                self.note(to, Effect::Made(fid), span);
            }
            Err(Error::Refused(Code::Exists)) => self.note(to, Effect::Present, span),
            // The file went meanwhile, or its name and then its inode.
            Err(error) => assert!(
                matches!(error, Error::Refused(Code::NotFound | Code::Stale)),
                "link to {new}: {error}"
            ),
        }
    }
}
