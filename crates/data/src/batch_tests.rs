use super::super::dataset::tests::{Counting, Lengths};
use super::*;
use proptest::prelude::*;

#[test]
fn ragged_batches_are_zero_behind_their_samples() {
    let data = Counting::new(9, None);
    let mut batch = Batch::new(data.fields(), 3).unwrap();
    batch.fill(&data, [4, 5, 6].into_iter()).unwrap();
    batch.fill(&data, [7].into_iter()).unwrap();
    assert_eq!(batch.samples(), [7]);
    assert_eq!(batch.f32(0, 0..3), [7.0, 7.5, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(batch.i32(1, 0..3), [-7, 0, 0]);
    assert_eq!(batch.field("label"), Some(1));
    assert!(batch.lengths().is_empty());
    assert_eq!(batch.tokens(), None, "what has no texts has no tokens");
}

#[test]
fn absurd_batches_are_refused_before_allocating() {
    let huge = [FieldSpec::new("x", Element::F32, &[usize::MAX / 2, 3])];
    assert!(matches!(Batch::new(&huge, 1), Err(DataError::BadOption { .. })));
    for field in [FieldSpec::new("x", Element::F32, &[1 << 20]), FieldSpec::variable("x", Element::I32, 0, 1 << 20, 0)]
    {
        for capacity in [1 << 60, 1 << 36] {
            let refused = Batch::new(std::slice::from_ref(&field), capacity);
            assert!(matches!(refused, Err(DataError::BadOption { .. })), "{capacity}");
        }
    }
}

#[test]
fn a_batch_is_as_long_as_its_longest_sample() {
    let data = Lengths::new(vec![3, 1, 0, 5, 18], 40);
    let mut batch = Batch::bucketed(data.fields(), 3, Buckets::Steps(4)).unwrap();
    batch.fill(&data, [0, 3].into_iter()).unwrap();
    assert_eq!((batch.lengths(), batch.real()), (&[8][..], &[8][..]));
    let p = Lengths::PAD;
    assert_eq!(batch.i32(0, 0..2), [1, 1, 1, p, p, p, p, p, 4, 4, 4, 4, 4, p, p, p]);
    assert_eq!(batch.i32(0, 2..3), [0; 8], "rows without a sample are zero, not padding");
    assert_eq!(batch.f32(1, 0..1), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    // Shorter again: nothing of the longer batch remains.
    batch.fill(&data, [4].into_iter()).unwrap();
    assert_eq!(batch.lengths(), [20]);
    batch.fill(&data, [2, 1].into_iter()).unwrap();
    assert_eq!((batch.lengths(), batch.i32(0, 0..3)), (&[4][..], &[p, p, p, p, 2, p, p, p, 0, 0, 0, 0][..]));
}

#[test]
fn a_sample_longer_than_its_field_is_an_error() {
    let data = Lengths::new(vec![3, 41], 40);
    let mut batch = Batch::new(data.fields(), 2).unwrap();
    assert!(matches!(batch.fill(&data, 0..2), Err(DataError::Worker { .. })));
}

proptest! {
    #[test]
    fn padding_changes_nothing_but_padding(lengths in proptest::collection::vec(0usize..30, 1..12), off: bool) {
        let data = Lengths::new(lengths.clone(), 30);
        let buckets = if off { Buckets::Off } else { Buckets::Auto };
        let mut batch = Batch::bucketed(data.fields(), 12, buckets).unwrap();
        batch.fill(&data, 0..lengths.len()).unwrap();
        let length = batch.lengths()[0];
        prop_assert_eq!(batch.real()[0], lengths.iter().sum::<usize>());
        prop_assert_eq!(batch.tokens(), Some(lengths.iter().sum::<usize>()));
        for (row, &real) in lengths.iter().enumerate() {
            let ids = batch.i32(0, row..row + 1);
            prop_assert_eq!(ids.len(), length);
            prop_assert!(ids[..real].iter().all(|&id| id == row as i32 + 1));
            prop_assert!(ids[real..].iter().all(|&id| id == Lengths::PAD));
        }
        prop_assert!(batch.i32(0, lengths.len()..12).iter().all(|&id| id == 0));
    }
}
