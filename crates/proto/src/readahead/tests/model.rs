//! Readers, locks and a cache at random, against a list of the bytes that are ahead.
//!
//! Every byte that is fetched ahead is in the file and is not ahead already; what is given up was ahead; the budgets of the mount
//! and of each file hold; every byte that was granted is held, used or dropped.

use super::*;

const FILES: usize = 3;
const HANDLES: u64 = 3;
const SIZE: u64 = 3 * MIB;

struct Model {
    mount: Mount,
    files: Vec<(File, Vec<bool>)>,
    dropped: u64,
    used: u64,
}

impl Model {
    fn new(settings: Settings) -> Model {
        let files = (0..FILES).map(|_| (File::default(), vec![false; SIZE as usize])).collect();
        Model { mount: Mount::new(settings), files, dropped: 0, used: 0 }
    }

    fn read(&mut self, file: usize, handle: u64, read: Range<u64>, size: u64) {
        let window_max = self.mount.settings.window_max();
        let (state, ahead) = &mut self.files[file];
        let decision = state.read(&mut self.mount, handle, read.clone(), size);
        self.used += clear(ahead, read.start..read.end.min(size));
        for range in &decision.give_up {
            assert_eq!(clear(ahead, range.clone()), range.end - range.start, "it was ahead");
            self.dropped += range.end - range.start;
        }
        for range in &decision.fetch {
            assert!(!range.is_empty() && range.end <= size, "{range:?} is not in the file");
            let bytes = &mut ahead[range.start as usize..range.end as usize];
            assert!(bytes.iter().all(|ahead| !ahead), "{range:?} is asked for twice");
            bytes.fill(true);
        }
        if !decision.fetch.is_empty() {
            assert!(state.ahead_bytes() <= window_max);
            assert!(self.mount.budget.held_bytes() <= self.mount.settings.mount_bytes_max);
        }
    }

    fn lost(&mut self, file: usize, range: Range<u64>, why: Why) {
        let (state, ahead) = &mut self.files[file];
        state.lost(&mut self.mount, range.clone(), why);
        self.dropped += clear(ahead, range);
    }

    fn arrived(&mut self, file: usize, range: Range<u64>) {
        let (state, ahead) = &mut self.files[file];
        let mut kept = vec![false; (range.end - range.start) as usize];
        for part in state.arrived(range.clone()) {
            kept[(part.start - range.start) as usize..(part.end - range.start) as usize].fill(true);
        }
        assert!(kept == ahead[range.start as usize..range.end as usize]);
    }

    fn close(&mut self, file: usize, handle: u64) {
        let (state, ahead) = &mut self.files[file];
        for range in state.closed(&mut self.mount, handle) {
            assert_eq!(clear(ahead, range.clone()), range.end - range.start);
            self.dropped += range.end - range.start;
        }
    }

    fn check(&self) {
        let mut held = 0;
        for (state, ahead) in &self.files {
            let bytes = ahead.iter().filter(|ahead| **ahead).count() as u64;
            assert_eq!(state.ahead_bytes(), bytes);
            held += bytes;
        }
        let budget = self.mount.budget;
        assert_eq!(
            (budget.held_bytes(), budget.used_bytes(), budget.dropped_bytes()),
            (held, self.used, self.dropped)
        );
        assert_eq!(budget.granted_bytes(), held + self.used + self.dropped);
    }
}

fn clear(ahead: &mut [bool], range: Range<u64>) -> u64 {
    let end = (range.end as usize).min(ahead.len());
    let part = &mut ahead[(range.start as usize).min(end)..end];
    let count = part.iter().filter(|ahead| **ahead).count();
    part.fill(false);
    count as u64
}

/// A reader with a pattern for now.
#[derive(Clone, Copy)]
struct Program {
    at: u64,
    len: u64,
    step: u64,
}

impl Program {
    fn new(random: &mut Rng) -> Program {
        let len = [1, 512, 3000, 4096, RECORD, 65_536][random.below(6) as usize];
        let step = [0, len, len, len, len + 100, len * 2 + 40_000, len * 3][random.below(7) as usize];
        Program { at: random.below(SIZE), len, step }
    }

    fn next(&mut self, random: &mut Rng) -> Range<u64> {
        match random.below(40) {
            0 => *self = Program::new(random),
            1 => self.at = self.at.saturating_sub(2 * self.step),
            2 => {
                let at = random.below(SIZE);
                return at..at + self.len;
            }
            _ => {}
        }
        let read = self.at..self.at + self.len;
        self.at = (self.at + self.step) % SIZE;
        read
    }
}

fn run(seed: u64, settings: Settings) -> Model {
    let mut random = Rng::new(seed);
    let mut model = Model::new(settings);
    let mut programs: Vec<Program> =
        (0..FILES as u64 * HANDLES * 2).map(|_| Program::new(&mut random)).collect();
    for step in 0..5000 {
        let number = random.below(programs.len() as u64);
        let (file, handle) = (number as usize % FILES, number / FILES as u64 % HANDLES);
        let a = random.below(SIZE);
        let range = a..(a + random.below(1 << 19)).min(SIZE);
        match random.below(100) {
            0 => model.close(file, handle),
            1..=2 => {
                let why = [Why::Dropped, Why::Taken, Why::NoLock, Why::NoMemory, Why::Failed];
                model.lost(file, range, why[random.below(5) as usize]);
            }
            3..=12 => model.arrived(file, range),
            13 if step % 5 == 0 => {
                // A file that is cut off for a while.
                let size = random.below(SIZE);
                model.lost(file, size..u64::MAX, Why::Taken);
                model.read(file, handle, range, size);
            }
            14 if step % 20 == 0 => {
                let settings = &mut model.mount.settings;
                settings.unit = if settings.unit == Unit::Bytes { Unit::Pages } else { Unit::Bytes };
            }
            _ => {
                let read = programs[number as usize].next(&mut random);
                model.read(file, handle, read, SIZE);
            }
        }
        if step % 500 == 0 {
            model.check();
        }
    }
    (0..FILES).for_each(|file| (0..HANDLES).for_each(|handle| model.close(file, handle)));
    model.check();
    assert!(model.mount.budget.held_bytes() == 0 && model.files.iter().all(|(file, _)| file.is_idle()));
    model
}

#[test]
fn random_readers_agree_with_a_list_of_bytes() {
    let (mut used, mut refused) = (0, 0);
    for seed in 0..12 {
        let settings = Settings {
            mount_bytes_max: [100 * KIB, MIB, 64 * MIB][seed as usize % 3],
            file_bytes_max: [70_000, 512 * KIB, 64 * MIB][seed as usize / 3 % 3],
            whole_bytes_max: if seed % 4 == 0 { SIZE } else { 0 },
            rpc_bytes: [4096, 64 * KIB, 100_000, MIB][seed as usize % 4],
            unit: Unit::Bytes,
        };
        let model = run(seed, settings);
        used += model.mount.budget.used_bytes();
        refused += model.mount.stats.get(Counter::HitMax).samples;
    }
    assert!(used > 50 * MIB && refused > 100, "the readers had something fetched: {used}, {refused}");
}

#[test]
fn spans_of_a_file_are_bounded_whatever_is_read() {
    let mut model = Model::new(Settings::new(64 << 30, 4096));
    for at in 0..16 {
        model.read(0, 1, at * 65_536..(at + 1) * 65_536, SIZE);
    }
    let mut random = Rng::new(9);
    for _ in 0..60_000 {
        let at = MIB + random.below(2 * MIB - 1);
        model.read(0, 1 + random.below(2), at..at + 1, SIZE);
    }
    model.check();
}
