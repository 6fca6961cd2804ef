//! The few messages of TensorFlow's protocol buffers that TensorBoard needs, written by hand.
//!
//! `Event { 1: wall_time f64, 2: step i64, 3: file_version string, 5: summary }`,
//! `Summary { 1: repeated Value { 1: tag string, 2: simple_value f32, 8: tensor, 9: metadata } }`.

use crate::metrics::Metric;

const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;
/// DT_STRING
const STRING_TYPE: u64 = 7;

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn key(&mut self, field: u64, wire: u64) -> &mut Self {
        self.varint(field << 3 | wire)
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.key(field, 0).varint(value)
    }

    fn double(&mut self, field: u64, value: f64) -> &mut Self {
        self.key(field, FIXED64).0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u64, value: f32) -> &mut Self {
        self.key(field, FIXED32).0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.key(field, LENGTH).varint(value.len() as u64).0.extend(value);
        self
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0)
    }
}

/// The first record of every file.
pub(super) fn version_event(time: f64) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, time).bytes(3, b"brain.Event:2");
    event.0
}

pub(super) fn scalar_event(metric: &Metric) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, metric.time).number(2, metric.step as u64).message(5, |summary| {
        summary.message(1, |value| {
            value.bytes(1, metric.tag().as_bytes()).float(2, metric.value as f32);
        });
    });
    event.0
}

/// A text for the plugin of that name: a tensor of one string.
pub(super) fn text_event(time: f64, step: usize, tag: &str, text: &str) -> Vec<u8> {
    let mut event = Message::default();
    event.double(1, time).number(2, step as u64).message(5, |summary| {
        summary.message(1, |value| {
            value.bytes(1, tag.as_bytes());
            value.message(8, |tensor| {
                // A shape of one dimension of size 1.
                tensor.number(1, STRING_TYPE).message(2, |shape| {
                    shape.message(2, |dimension| {
                        dimension.number(1, 1);
                    });
                });
                tensor.bytes(8, text.as_bytes());
            });
            value.message(9, |metadata| {
                metadata.message(1, |plugin| {
                    plugin.bytes(1, b"text");
                });
            });
        });
    });
    event.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_protocol_buffers_write_them() {
        let mut message = Message::default();
        message.number(1, 150).bytes(2, b"testing").float(3, 1.0);
        assert_eq!(message.0, [8, 150, 1, 18, 7, 116, 101, 115, 116, 105, 110, 103, 29, 0, 0, 128, 63]);
    }

    #[test]
    fn large_steps_and_long_texts_keep_their_length() {
        let long = "ü".repeat(100_000);
        let event = text_event(1.0, usize::MAX >> 1, "t", &long);
        assert!(event.len() > 200_000 && event.windows(4).any(|w| w == b"text"));
    }
}
