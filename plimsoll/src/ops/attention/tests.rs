use super::grad::AttentionGrad;
use super::*;

fn types(shapes: &[&[usize]]) -> Vec<Type> {
    shapes.iter().map(|shape| Type::new(DType::F32, shape)).collect()
}

#[test]
fn wrong_inputs_are_named() {
    let plain = Attention::plain(1.0);
    let qkv: &[usize] = &[2, 5, 3, 4, 8];
    let cause = |op: &Attention, shapes: &[&[usize]]| op.outputs(&types(shapes)).unwrap_err().0;
    assert!(cause(&plain, &[&[2, 5, 2, 4, 8]]).contains("packed qkv"));
    assert!(cause(&plain, &[qkv, qkv]).contains("2 inputs instead of 1"));
    let cross = Attention { packing: Packing::QKv, ..plain.clone() };
    assert!(cause(&cross, &[&[2, 5, 4, 8], &[2, 7, 2, 4, 9]]).contains("kv"));
    let masked = Attention { key_mask: true, ..plain.clone() };
    assert!(cause(&masked, &[qkv, &[2, 5]]).contains("key mask i32[2,5]"));
    let relative = Bias::Relative { bidirectional: true, max_distance: 128 };
    let relative = Attention { bias: relative, ..plain.clone() };
    assert!(cause(&relative, &[qkv, &[32, 5]]).contains("table 0"));
    assert!(cause(&relative, &[qkv, &[3, 4]]).contains("buckets"));
    let positions = Bias::Disentangled { buckets: 0, max_distance: 6 };
    let positions = Attention { bias: positions, ..plain.clone() };
    assert!(cause(&positions, &[qkv, &[12, 4, 8], &[11, 4, 8]]).contains("table 1"));
    let decoding = Attention { offset: true, ..plain };
    assert!(cause(&decoding, &[qkv, &[1]]).contains("position i64[1]"));
}

#[test]
fn statistics_of_half_precision_are_f32() {
    let inputs = [Type::new(DType::Bf16, &[2, 5, 3, 4, 8])];
    let outputs = Attention::plain(1.0).outputs(&inputs).unwrap();
    assert_eq!([outputs[0].dtype, outputs[1].dtype], [DType::Bf16, DType::F32]);
    let threads = Target::cpu(1);
    let f32s = types(&[&[2, 5, 3, 4, 8]]);
    let op = AttentionGrad(Attention::plain(1.0));
    assert_eq!(op.workspace(&inputs, &threads), op.workspace(&f32s, &threads));
}

#[test]
fn an_offset_is_not_differentiated() {
    let mut graph = Graph::new("decode", DType::F32);
    let qkv = graph.parameter("qkv", &[1, 1, 3, 1, 4], crate::graph::Init::Zeros, false).unwrap();
    let position = graph.data("position", Type::new(DType::I64, &[1])).unwrap();
    let op = Attention { offset: true, ..Attention::plain(1.0) };
    let out = graph.apply_all("attention", op, &[qkv, position]).unwrap()[0];
    let loss = graph.apply("loss", Reshape { shape: vec![4] }, &[out]).unwrap();
    let loss = graph.apply("sum", Sum { axis: 0 }, &[loss]).unwrap();
    let seed = graph.scalar("seed").unwrap();
    let cause = crate::autodiff::gradients(&mut graph, loss, seed, &[qkv]).unwrap_err().to_string();
    assert!(cause.contains("no gradient"), "{cause}");
}
