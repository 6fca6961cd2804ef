//! Snapshots as PyTorch writes them, and what becomes of them when bytes change: whatever a file holds, it is read or
//! refused; nothing panics, nothing is run. PLIMSOLL_MUTATIONS says how many are tried (100,000 before a release).

use plimsoll_ghost::doctor::Diagnosis;
use plimsoll_ghost::pickle::Pickle;
use plimsoll_ghost::replay::Replay;
use plimsoll_ghost::settings::Settings;
use plimsoll_ghost::snapshot::Snapshot;

const MIB: u64 = 1 << 20;

/// Numbers from a seed; the seed is printed by whoever fails.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

/// Writes pickles with the operations that Python's own writer uses.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn text(&mut self, text: &str) {
        self.0.extend([0x8c, text.len() as u8]);
        self.0.extend(text.as_bytes());
        self.0.push(0x94);
    }

    fn int(&mut self, number: u64) {
        match number {
            0..=255 => self.0.extend([b'K', number as u8]),
            256..=0xffff => {
                self.0.push(b'M');
                self.0.extend((number as u16).to_le_bytes());
            }
            _ => {
                self.0.extend([0x8a, 8]);
                self.0.extend(number.to_le_bytes());
            }
        }
    }

    fn dict(&mut self, inside: impl FnOnce(&mut Writer)) {
        self.0.extend([b'}', 0x94, b'(']);
        inside(self);
        self.0.push(b'u');
    }

    fn list(&mut self, inside: impl FnOnce(&mut Writer)) {
        self.0.extend([b']', 0x94, b'(']);
        inside(self);
        self.0.push(b'e');
    }

    fn entry(&mut self, key: &str, number: u64) {
        self.text(key);
        self.int(number);
    }
}

fn event(writer: &mut Writer, action: &str, address: u64, size: u64) {
    writer.dict(|writer| {
        writer.text("action");
        writer.text(action);
        writer.entry(if action == "oom" { "device_free" } else { "addr" }, address);
        writer.entry("size", size);
        writer.entry("stream", 0);
        writer.text("frames");
        writer.list(|writer| {
            writer.dict(|writer| {
                writer.text("filename");
                writer.text("train.py");
                writer.entry("line", 7);
                writer.text("name");
                writer.text("step");
            });
        });
    });
}

/// A program of one segment: some blocks come and go, one request fails.
fn events(writer: &mut Writer, dice: &mut Dice) {
    let base = 1 << 45;
    event(writer, "segment_alloc", base, 20 * MIB);
    let mut at = base;
    for _ in 0..dice.roll(6) + 1 {
        let size = MIB + 512 * (dice.roll(1000) + 1);
        event(writer, "alloc", at, size);
        if dice.roll(2) == 0 {
            event(writer, "free_requested", at, size);
            event(writer, "free_completed", at, size);
        } else {
            at += size.next_multiple_of(512);
        }
    }
    event(writer, "oom", 3 * MIB, 64 * MIB);
}

fn snapshot(dice: &mut Dice) -> Vec<u8> {
    let mut writer = Writer(vec![0x80, 4]);
    writer.dict(|writer| {
        writer.text("segments");
        writer.list(|writer| segment(writer, dice));
        writer.text("device_traces");
        writer.list(|writer| writer.list(|writer| events(writer, dice)));
        writer.text("allocator_settings");
        writer.dict(|writer| {
            writer.entry("max_split_size", if dice.roll(2) == 0 { 32 * MIB } else { (1 << 63) - 1 });
            writer.text("expandable_segments");
            writer.0.push(if dice.roll(3) == 0 { 0x88 } else { 0x89 });
        });
    });
    writer.0.push(b'.');
    writer.0
}

fn segment(writer: &mut Writer, dice: &mut Dice) {
    let used = MIB + 512 * dice.roll(4000);
    writer.dict(|writer| {
        writer.entry("device", 0);
        writer.entry("address", (1 << 45) + 512 * dice.roll(3));
        writer.entry("total_size", 20 * MIB);
        writer.entry("allocated_size", used);
        writer.entry("stream", 0);
        writer.text("blocks");
        writer.list(|writer| {
            for (state, size) in [("active_allocated", used), ("inactive", 20 * MIB - used)] {
                writer.dict(|writer| {
                    writer.entry("size", size);
                    writer.text("state");
                    writer.text(state);
                });
            }
        });
    });
}

fn mutated(mut bytes: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    for _ in 0..dice.roll(4) + 1 {
        let at = dice.roll(bytes.len() as u64) as usize;
        let other = dice.roll(bytes.len() as u64) as usize;
        let byte = dice.roll(256) as u8;
        match dice.roll(6) {
            0 => bytes[at] = byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, byte),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at.max(1)),
            _ => bytes.swap(at, other),
        }
        if bytes.is_empty() {
            bytes.push(byte);
        }
    }
    bytes
}

/// Everything that the commands do with a file.
fn use_it(bytes: &[u8]) -> bool {
    let Ok(pickle) = Pickle::read(bytes) else { return false };
    let Ok(snapshot) = Snapshot::of(&pickle) else { return false };
    let other = Settings::parse("expandable_segments:True").unwrap();
    for memory in [None, Some(24 * MIB)] {
        let diagnosis = Diagnosis::of(&snapshot, memory);
        let replay = Replay::of(&snapshot, memory, &[(String::new(), other.clone())]);
        assert!(!diagnosis.text().is_empty() && !replay.text().is_empty());
    }
    true
}

#[test]
fn a_snapshot_is_read_with_the_request_that_failed() {
    for seed in 0..50 {
        let bytes = snapshot(&mut Dice(seed));
        let found = Snapshot::of(&Pickle::read(&bytes).unwrap()).unwrap();
        let diagnosis = Diagnosis::of(&found, None);
        assert_eq!(diagnosis.reserved_bytes, 20 * MIB, "seed {seed}");
        assert_eq!(diagnosis.failed.len(), 1, "seed {seed}");
        assert_eq!((diagnosis.failed[0].wanted_bytes, diagnosis.failed[0].free_bytes), (64 * MIB, 3 * MIB));
        assert!(!diagnosis.failed[0].expandable_segments_would_serve, "64 MiB are not in 23");
    }
}

#[test]
fn no_mutation_of_a_snapshot_brings_the_reader_down() {
    let count = std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(4000);
    let mut read = 0;
    for seed in 0..count {
        let mut dice = Dice(seed);
        let whole = snapshot(&mut dice);
        let bytes = mutated(whole, &mut dice);
        let outcome = std::panic::catch_unwind(|| use_it(&bytes));
        read += u64::from(outcome.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    // Most changes of a byte leave a pickle; a test that only ever sees refusals would test nothing.
    assert!(read * 20 > count, "{read} of {count} were read");
}
