use super::{
    super::dataset::tests::{Counting, Lengths},
    *,
};
use std::collections::HashSet;

fn options(workers: usize) -> LoaderOptions {
    let (compose, buckets) = (Compose::Random, Buckets::Auto);
    LoaderOptions { batch: 4, workers, prefetch: 2, shuffle: Some(9), epochs: Some(3), compose, buckets }
}

fn all(dataset: impl Dataset + 'static, options: &LoaderOptions, start: Position) -> Vec<Batch> {
    let mut loader = Loader::new(Arc::new(dataset), options, start).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = loader.next() {
        batches.push(batch.unwrap().clone());
    }
    batches
}

#[test]
fn batches_are_the_same_whatever_the_workers() {
    let inline = all(Counting::new(23, None), &options(0), Position::default());
    assert_eq!(inline.len(), 3 * 6);
    assert_eq!(inline.iter().map(Batch::len).sum::<usize>(), 3 * 23);
    assert_eq!(inline[5].len(), 3, "the last batch of an epoch is ragged, not dropped");
    for workers in [1, 3] {
        assert_eq!(all(Counting::new(23, None), &options(workers), Position::default()), inline);
    }
}

#[test]
fn resume_continues_exactly() {
    let whole = all(Counting::new(23, None), &options(1), Position::default());
    for (at, batch) in whole.iter().enumerate() {
        let stored: Position = serde_json::from_str(&serde_json::to_string(&batch.end()).unwrap()).unwrap();
        assert_eq!(all(Counting::new(23, None), &options(2), stored), whole[at + 1..]);
    }
}

fn texts() -> Lengths {
    Lengths::new((0..600u64).map(|i| (plimsoll_base::random::mix(i) % 40) as usize).collect(), 40)
}

#[test]
fn batches_composed_by_length_are_the_same_whatever_the_workers_and_resume_exactly() {
    let options = |workers| LoaderOptions { compose: Compose::Length, ..options(workers) };
    let whole = all(texts(), &options(0), Position::default());
    assert_eq!(whole.len(), 3 * 150);
    for workers in [1, 3] {
        assert!(all(texts(), &options(workers), Position::default()) == whole, "{workers} workers");
    }
    for at in [0, 1, 63, 64, 99, 149, 150, 300, 448] {
        assert!(all(texts(), &options(2), whole[at].end()) == whole[at + 1..], "from batch {at}");
    }
    let cost = |batches: &[Batch]| {
        let computed: usize = batches.iter().map(|b| b.len() * b.lengths()[0]).sum();
        computed as f64 / batches.iter().map(|b| b.real()[0]).sum::<usize>() as f64
    };
    let random = all(texts(), &LoaderOptions { compose: Compose::Random, ..options(1) }, Position::default());
    assert!(cost(&whole) < 1.05 && cost(&random) > 1.3, "{} against {}", cost(&whole), cost(&random));
}

#[test]
fn buffers_are_recycled() {
    let mut loader = Loader::new(
        Arc::new(Counting::new(50, None)),
        &LoaderOptions { epochs: None, ..options(3) },
        Position::default(),
    )
    .unwrap();
    let mut addresses = HashSet::new();
    for _ in 0..200 {
        addresses.insert(loader.next().unwrap().unwrap().f32(0, 0..4).as_ptr() as usize);
    }
    assert!(addresses.len() <= 3, "{} buffers for 2 batches ahead and one in use", addresses.len());
    let stats = loader.stats();
    assert_eq!(stats.batches, 200);
    assert!(stats.stall <= stats.elapsed && stats.samples > 0);
    assert!(stats.filled >= stats.samples, "what is ahead was filled too: {stats:?}");
}

#[test]
fn what_the_loader_can_deliver_is_not_what_a_slow_consumer_takes() {
    for workers in [0, 2] {
        let options = LoaderOptions { epochs: None, ..options(workers) };
        let mut loader = Loader::new(Arc::new(Counting::new(50, None)), &options, Position::default()).unwrap();
        assert!(workers > 0 || loader.stats().filled_per_s().is_none(), "nothing was filled yet");
        for _ in 0..5 {
            loader.next().unwrap().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let stats = loader.stats();
        let (can, takes) = (stats.filled_per_s().unwrap(), stats.samples as f64 / stats.elapsed.as_secs_f64());
        assert!(can > 3.0 * takes, "{workers} workers: {can} against {takes}");
    }
}

#[test]
fn an_error_reaches_the_consumer_at_its_batch() {
    for workers in [0, 2] {
        let options = LoaderOptions { shuffle: None, epochs: Some(1), ..options(workers) };
        let mut loader = Loader::new(Arc::new(Counting::new(12, Some(6))), &options, Position::default()).unwrap();
        assert!(loader.next().unwrap().is_ok());
        let error = loader.next().unwrap().unwrap_err();
        assert!(error.to_string().contains("sample 6"), "{error}");
        assert_eq!(loader.next().unwrap().unwrap().samples(), [8, 9, 10, 11]);
        assert!(loader.next().is_none());
    }
}

struct Panicking(Counting);
impl Dataset for Panicking {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn fields(&self) -> &[FieldSpec] {
        self.0.fields()
    }
    fn fill(&self, sample: usize, _: &mut super::super::RowMut<'_>) -> Result<(), DataError> {
        panic!("sample {sample}")
    }
    fn resident_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_panic_in_a_worker_is_an_error_not_a_hang() {
    let data = Arc::new(Panicking(Counting::new(5, None)));
    let mut loader = Loader::new(data, &options(2), Position::default()).unwrap();
    assert!(matches!(loader.next(), Some(Err(DataError::Worker { .. }))));
}

#[test]
fn dropping_stops_the_workers() {
    let data: Arc<dyn Dataset> = Arc::new(Counting::new(1000, None));
    let mut loader = Loader::new(Arc::clone(&data), &options(3), Position::default()).unwrap();
    loader.next().unwrap().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&data), 1, "a worker still holds the dataset");
}

#[test]
fn host_bytes_are_planned_from_options() {
    let data = Counting::new(5, None);
    // 3 buffers of 4 samples: 2 × f32, 1 × i32 and the sample's number, as chosen and as taken.
    let buffers = 3 * 4 * (8 + 4 + 2 * size_of::<usize>());
    assert_eq!(options(2).host_bytes(data.fields()).unwrap(), buffers + 2 * WORKER_STACK_BYTES);
    let composed = LoaderOptions { compose: Compose::Length, ..options(0) }.host_bytes(data.fields()).unwrap();
    assert_eq!(composed, buffers / 3 + Composer::host_bytes(4, Compose::Length));
    for bad in [
        LoaderOptions { batch: 0, ..options(1) },
        LoaderOptions { prefetch: 0, ..options(1) },
        LoaderOptions { prefetch: usize::MAX, ..options(1) },
        LoaderOptions { workers: 100_000, ..options(1) },
    ] {
        assert!(matches!(bad.host_bytes(data.fields()), Err(DataError::BadOption { .. })), "{bad:?}");
    }
}
