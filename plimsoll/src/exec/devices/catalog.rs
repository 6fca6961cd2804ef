//! Cards that plans can be made for without having one.

use crate::recipe::nearest;
use serde::Serialize;
use thiserror::Error;

/// What planning needs to know about a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Card {
    pub name: &'static str,
    /// Memory as the driver reports it, which is less than the number on the box.
    pub total_bytes: u64,
    /// What a run cannot plan with: the driver's own share, context, libraries, modules and captured graphs. Never
    /// below what was measured on an H200: 628 MiB besides the driver's share.
    pub reserve_bytes: u64,
    pub bandwidth_gb_per_s: f64,
    /// Ordinary f32 arithmetic, without tensor cores.
    pub f32_tflops: f64,
    /// (major, minor)
    pub compute_capability: (u32, u32),
}

const fn card_of(
    name: &'static str,
    total_mib: u64,
    reserve_mib: u64,
    bandwidth_gb_per_s: f64,
    f32_tflops: f64,
    compute_capability: (u32, u32),
) -> Card {
    let (total_bytes, reserve_bytes) = (total_mib << 20, reserve_mib << 20);
    Card { name, total_bytes, reserve_bytes, bandwidth_gb_per_s, f32_tflops, compute_capability }
}

/// By memory, smallest first.
const CARDS: [Card; 15] = [
    card_of("gtx-1080-ti", 11264, 768, 484.0, 11.3, (6, 1)),
    card_of("rtx-4070", 12282, 1024, 504.0, 29.1, (8, 9)),
    card_of("rtx-3060-12gb", 12288, 960, 360.0, 12.7, (8, 6)),
    card_of("t4", 15360, 1024, 320.0, 8.1, (7, 5)),
    card_of("rtx-4080", 16376, 1088, 716.8, 48.7, (8, 9)),
    card_of("v100-16gb", 16384, 960, 900.0, 15.7, (7, 0)),
    card_of("a10", 23028, 1152, 600.0, 31.2, (8, 6)),
    card_of("l4", 23034, 1152, 300.0, 30.3, (8, 9)),
    card_of("rtx-4090", 24564, 1088, 1008.0, 82.6, (8, 9)),
    card_of("rtx-3090", 24576, 1024, 936.0, 35.6, (8, 6)),
    card_of("rtx-5090", 32607, 1216, 1792.0, 104.8, (12, 0)),
    card_of("a100-40gb", 40960, 1344, 1555.0, 19.5, (8, 0)),
    card_of("h100-80gb", 81559, 1344, 3350.0, 67.0, (9, 0)),
    card_of("a100-80gb", 81920, 1536, 2039.0, 19.5, (8, 0)),
    card_of("h200", 143771, 1408, 4800.0, 67.0, (9, 0)),
];

/// All cards, by memory.
pub fn catalog() -> &'static [Card] {
    &CARDS
}

#[derive(Clone, Debug, PartialEq, Error)]
#[error("no card is called `{name}`")]
pub struct UnknownCard {
    pub name: String,
    pub nearest: Option<&'static str>,
}

impl UnknownCard {
    /// What to try instead.
    pub fn hint(&self) -> String {
        match self.nearest {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`plimsoll devices --catalog` lists the cards".into(),
        }
    }
}

/// The card of this name.
pub fn card(name: &str) -> Result<&'static Card, UnknownCard> {
    let found = CARDS.iter().find(|card| card.name == name);
    found.ok_or_else(|| UnknownCard { name: name.into(), nearest: nearest(name, CARDS.iter().map(|card| card.name)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_names_these() {
        for name in ["t4", "rtx-3060-12gb", "rtx-4090", "a100-40gb", "rtx-5090", "h200"] {
            assert_eq!(card(name).unwrap().name, name);
        }
        assert_eq!(card("h200").unwrap().total_bytes, 143771 << 20);
    }

    #[test]
    fn no_card_promises_more_than_it_has() {
        const MEASURED_RESERVE: u64 = 628 << 20;
        for card in catalog() {
            assert!(card.reserve_bytes > MEASURED_RESERVE && card.reserve_bytes < card.total_bytes / 8, "{card:?}");
            assert!(card.bandwidth_gb_per_s > 0.0 && card.f32_tflops > 0.0, "{card:?}");
        }
        assert!(catalog().windows(2).all(|w| w[0].total_bytes <= w[1].total_bytes && w[0].name != w[1].name));
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let error = card("RTX-4900").unwrap_err();
        assert_eq!(error.hint(), "did you mean `rtx-4090`?");
        assert!(card("abacus").unwrap_err().nearest.is_none());
    }
}
