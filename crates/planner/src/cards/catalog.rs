//! Cards that plans can be made for without having one.

use plimsoll_base::names::nearest;
use serde::Serialize;
use std::cmp::Reverse;
use thiserror::Error;

/// What planning needs to know about a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Card {
    /// Lower case with dashes: `rtx-4090`.
    pub name: &'static str,
    /// Memory as CUDA reports it to a program: less than the number on the box, and less than nvidia-smi says, by the
    /// driver's own share.
    pub total_bytes: u64,
    /// What a run cannot plan with: context, libraries, modules and captured graphs. Never below what was measured on an
    /// H200: 628 MiB.
    pub reserve_bytes: u64,
    /// Of its own memory.
    pub bandwidth_gb_per_s: f64,
    /// To and from the host, one way.
    pub pcie_gb_per_s: f64,
    /// Ordinary f32 arithmetic, without tensor cores.
    pub f32_tflops: f64,
    /// Dense products by tensor cores, summed in f32; as `f32_tflops` where there are none for the type.
    pub tf32_tflops: f64,
    /// The same in f16.
    pub f16_tflops: f64,
    /// The same in bf16.
    pub bf16_tflops: f64,
    /// The cache that all of the card shares.
    pub cache_mib: f64,
    /// Streaming multiprocessors: what a small kernel cannot fill.
    pub multiprocessors: usize,
    /// (major, minor)
    pub compute_capability: (u32, u32),
}

/// The oldest compute capability that kernels are compiled for.
const OLDEST_RUN: (u32, u32) = (7, 5);

impl Card {
    /// Whether plans for it can also run on it; for older cards they can only be made.
    pub fn can_run(&self) -> bool {
        self.compute_capability >= OLDEST_RUN
    }
}

/// What the driver keeps of a card, in MiB: 615 of 143,771 on an H200, 265 of 15,360 on a T4, 320 to 450 of the 24,564 on
/// cards of 24 GB.
const fn driver_share_mib(total_mib: u64) -> u64 {
    let part = total_mib * 8 / 1000;
    200 + if part < 415 { part } else { 415 }
}

/// A little above what was measured.
const LEAST_RESERVE_MIB: u64 = 640;

/// `[total_mib, reserve_mib]` as nvidia-smi and the driver together have them: the driver's share is in both.
const fn card_of(
    name: &'static str,
    [total_mib, reserve_mib]: [u64; 2],
    [bandwidth_gb_per_s, pcie_gb_per_s]: [f64; 2],
    [f32_tflops, tf32_tflops, f16_tflops, bf16_tflops]: [f64; 4],
    cache_mib: f64,
    multiprocessors: usize,
    compute_capability: (u32, u32),
) -> Card {
    let share = driver_share_mib(total_mib);
    let reserve = reserve_mib.saturating_sub(share);
    Card {
        name,
        total_bytes: (total_mib - share) << 20,
        reserve_bytes: if reserve < LEAST_RESERVE_MIB { LEAST_RESERVE_MIB } else { reserve } << 20,
        bandwidth_gb_per_s,
        pcie_gb_per_s,
        f32_tflops,
        tf32_tflops,
        f16_tflops,
        bf16_tflops,
        cache_mib,
        multiprocessors,
        compute_capability,
    }
}

/// By memory, smallest first: [total, reserve] MiB; [memory, PCIe] GB/s; [f32, tf32, f16, bf16] TFLOP/s; cache MiB;
/// multiprocessors; compute capability. Published specifications of the reference models.
#[rustfmt::skip]
const CARDS: [Card; 57] = [
    card_of("rtx-2060", [6144, 736], [336.0, 15.75], [6.5, 6.5, 25.8, 6.5], 3.0, 30, (7, 5)),
    card_of("rtx-5060", [8151, 896], [448.0, 31.5], [19.2, 19.2, 38.4, 38.4], 32.0, 30, (12, 0)),
    card_of("rtx-4060", [8188, 896], [272.0, 15.75], [15.1, 15.1, 30.2, 30.2], 24.0, 24, (8, 9)),
    card_of("rtx-4060-ti-8gb", [8188, 896], [288.0, 15.75], [22.1, 22.1, 44.1, 44.1], 32.0, 34, (8, 9)),
    card_of("rtx-2070", [8192, 768], [448.0, 15.75], [7.5, 7.5, 29.9, 7.5], 4.0, 36, (7, 5)),
    card_of("rtx-2080", [8192, 768], [448.0, 15.75], [10.1, 10.1, 40.3, 10.1], 4.0, 46, (7, 5)),
    card_of("rtx-3050", [8192, 832], [224.0, 15.75], [9.1, 9.1, 18.2, 18.2], 2.0, 20, (8, 6)),
    card_of("rtx-3060-ti", [8192, 832], [448.0, 31.5], [16.2, 16.2, 32.4, 32.4], 4.0, 38, (8, 6)),
    card_of("rtx-3070", [8192, 832], [448.0, 31.5], [20.3, 20.3, 40.6, 40.6], 4.0, 46, (8, 6)),
    card_of("rtx-3070-ti", [8192, 832], [608.0, 31.5], [21.7, 21.7, 43.5, 43.5], 4.0, 48, (8, 6)),
    card_of("rtx-3080-10gb", [10240, 896], [760.0, 31.5], [29.8, 29.8, 59.5, 59.5], 5.0, 68, (8, 6)),
    card_of("gtx-1080-ti", [11264, 768], [484.0, 15.75], [11.3, 11.3, 11.3, 11.3], 2.75, 28, (6, 1)),
    card_of("rtx-2080-ti", [11264, 832], [616.0, 15.75], [13.4, 13.4, 53.8, 13.4], 5.5, 68, (7, 5)),
    card_of("rtx-5070", [12227, 1024], [672.0, 63.0], [30.9, 30.9, 61.7, 61.7], 48.0, 48, (12, 0)),
    card_of("rtx-4070", [12282, 1024], [504.0, 31.5], [29.1, 29.1, 58.3, 58.3], 36.0, 46, (8, 9)),
    card_of("rtx-4070-super", [12282, 1024], [504.0, 31.5], [35.5, 35.5, 71.0, 71.0], 48.0, 56, (8, 9)),
    card_of("rtx-4070-ti", [12282, 1024], [504.0, 31.5], [40.1, 40.1, 80.2, 80.2], 48.0, 60, (8, 9)),
    card_of("rtx-3060-12gb", [12288, 960], [360.0, 31.5], [12.7, 12.7, 25.5, 25.5], 3.0, 28, (8, 6)),
    card_of("rtx-3080-12gb", [12288, 960], [912.0, 31.5], [30.6, 30.6, 61.3, 61.3], 6.0, 70, (8, 6)),
    card_of("rtx-3080-ti", [12288, 960], [912.0, 31.5], [34.1, 34.1, 68.2, 68.2], 6.0, 80, (8, 6)),
    card_of("t4", [15360, 1024], [320.0, 15.75], [8.1, 8.1, 65.0, 8.1], 4.0, 40, (7, 5)),
    card_of("p100-16gb", [16280, 832], [732.0, 15.75], [9.3, 9.3, 18.7, 9.3], 4.0, 56, (6, 0)),
    card_of("rtx-5070-ti", [16303, 1088], [896.0, 63.0], [43.9, 43.9, 87.9, 87.9], 48.0, 70, (12, 0)),
    card_of("rtx-5080", [16303, 1088], [960.0, 63.0], [56.3, 56.3, 112.6, 112.6], 64.0, 84, (12, 0)),
    card_of("rtx-5060-ti-16gb", [16311, 1088], [448.0, 31.5], [23.7, 23.7, 47.4, 47.4], 32.0, 36, (12, 0)),
    card_of("rtx-4070-ti-super", [16376, 1088], [672.0, 31.5], [44.1, 44.1, 88.2, 88.2], 48.0, 66, (8, 9)),
    card_of("rtx-4080", [16376, 1088], [716.8, 31.5], [48.7, 48.7, 97.5, 97.5], 64.0, 76, (8, 9)),
    card_of("rtx-4080-super", [16376, 1088], [736.0, 31.5], [52.2, 52.2, 104.4, 104.4], 64.0, 80, (8, 9)),
    card_of("rtx-a4000", [16376, 1024], [448.0, 31.5], [19.2, 38.3, 76.7, 76.7], 4.0, 48, (8, 6)),
    card_of("rtx-4060-ti-16gb", [16380, 1024], [288.0, 15.75], [22.1, 22.1, 44.1, 44.1], 32.0, 34, (8, 9)),
    card_of("v100-16gb", [16384, 960], [900.0, 15.75], [15.7, 15.7, 125.0, 15.7], 6.0, 80, (7, 0)),
    card_of("a10", [23028, 1152], [600.0, 31.5], [31.2, 62.5, 125.0, 125.0], 6.0, 72, (8, 6)),
    card_of("a10g", [23028, 1152], [600.0, 31.5], [35.0, 35.0, 70.0, 70.0], 6.0, 80, (8, 6)),
    card_of("l4", [23034, 1152], [300.0, 31.5], [30.3, 60.5, 121.0, 121.0], 48.0, 58, (8, 9)),
    card_of("titan-rtx", [24220, 960], [672.0, 15.75], [16.3, 16.3, 130.5, 16.3], 6.0, 72, (7, 5)),
    card_of("rtx-3090-ti", [24564, 1024], [1008.0, 31.5], [40.0, 40.0, 80.0, 80.0], 6.0, 84, (8, 6)),
    card_of("rtx-4090", [24564, 1088], [1008.0, 31.5], [82.6, 82.6, 165.2, 165.2], 72.0, 128, (8, 9)),
    card_of("rtx-a5000", [24564, 1088], [768.0, 31.5], [27.8, 55.6, 111.1, 111.1], 6.0, 64, (8, 6)),
    card_of("rtx-3090", [24576, 1024], [936.0, 31.5], [35.6, 35.6, 71.2, 71.2], 6.0, 82, (8, 6)),
    card_of("a30", [24576, 1216], [933.0, 31.5], [10.3, 82.0, 165.0, 165.0], 24.0, 56, (8, 0)),
    card_of("rtx-5090", [32607, 1216], [1792.0, 63.0], [104.8, 104.8, 209.5, 209.5], 96.0, 170, (12, 0)),
    card_of("v100-32gb", [32768, 1088], [900.0, 15.75], [15.7, 15.7, 125.0, 15.7], 6.0, 80, (7, 0)),
    card_of("a100-40gb", [40960, 1344], [1555.0, 31.5], [19.5, 156.0, 312.0, 312.0], 40.0, 108, (8, 0)),
    card_of("a40", [46068, 1280], [696.0, 31.5], [37.4, 74.8, 149.7, 149.7], 6.0, 84, (8, 6)),
    card_of("l40", [46068, 1280], [864.0, 31.5], [90.5, 90.5, 181.0, 181.0], 96.0, 142, (8, 9)),
    card_of("l40s", [46068, 1280], [864.0, 31.5], [91.6, 183.0, 362.0, 362.0], 96.0, 142, (8, 9)),
    card_of("rtx-6000-ada", [49140, 1280], [960.0, 31.5], [91.1, 182.1, 364.2, 364.2], 96.0, 142, (8, 9)),
    card_of("rtx-a6000", [49140, 1280], [768.0, 31.5], [38.7, 77.4, 154.8, 154.8], 6.0, 84, (8, 6)),
    card_of("h100-80gb", [81559, 1344], [3350.0, 63.0], [67.0, 494.7, 989.4, 989.4], 50.0, 132, (9, 0)),
    card_of("h100-pcie", [81559, 1344], [2039.0, 63.0], [51.2, 378.0, 756.0, 756.0], 50.0, 114, (9, 0)),
    card_of("a100-80gb", [81920, 1536], [2039.0, 31.5], [19.5, 156.0, 312.0, 312.0], 40.0, 108, (8, 0)),
    card_of("h100-nvl", [95830, 1408], [3938.0, 63.0], [60.0, 417.5, 835.5, 835.5], 50.0, 132, (9, 0)),
    card_of("gh200-96gb", [97871, 1408], [4000.0, 450.0], [67.0, 494.7, 989.4, 989.4], 50.0, 132, (9, 0)),
    card_of("h20", [97871, 1408], [4000.0, 63.0], [44.0, 74.0, 148.0, 148.0], 60.0, 78, (9, 0)),
    card_of("rtx-pro-6000", [97887, 1536], [1792.0, 63.0], [125.0, 251.9, 503.8, 503.8], 128.0, 188, (12, 0)),
    card_of("h200", [143771, 1408], [4800.0, 63.0], [67.0, 494.7, 989.4, 989.4], 50.0, 132, (9, 0)),
    card_of("b200", [183359, 1664], [8000.0, 63.0], [75.0, 1125.0, 2250.0, 2250.0], 126.0, 148, (10, 0)),
];

/// All cards, by memory.
pub fn catalog() -> &'static [Card] {
    &CARDS
}

/// No card is called so.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("no card is called `{name}`")]
pub struct UnknownCard {
    /// What was asked for.
    pub name: String,
    /// What may have been meant.
    pub nearest: Vec<&'static str>,
}

impl UnknownCard {
    /// What to try instead.
    pub fn hint(&self) -> String {
        match &self.nearest[..] {
            [] => "`plimsoll devices --catalog` lists the cards".into(),
            names => format!("did you mean `{}`?", names.join("` or `")),
        }
    }
}

/// The card of this name.
pub fn card(name: &str) -> Result<&'static Card, UnknownCard> {
    let found = CARDS.iter().find(|card| card.name == name);
    found.ok_or_else(|| UnknownCard { name: name.into(), nearest: meant(name) })
}

/// The variants of a card that was named without, such as `rtx-3060`; else the name that is spelled most alike.
fn meant(name: &str) -> Vec<&'static str> {
    let variants = variants(name);
    match variants.len() {
        1..=4 => variants.iter().map(|card| card.name).collect(),
        _ => nearest(name, CARDS.iter().map(|card| card.name)).into_iter().collect(),
    }
}

/// The cards of a name that lacks its variant: `h100` has three, `h100-pcie` none.
pub fn variants(name: &str) -> Vec<&'static Card> {
    let is_variant = |known: &str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    match CARDS.iter().any(|card| card.name == name) {
        true => Vec::new(),
        false => CARDS.iter().filter(|card| is_variant(card.name)).collect(),
    }
}

/// The card that a GPU is, or the one of its generation that comes nearest in memory.
pub(crate) fn nearest_card(compute_capability: (u32, u32), total_bytes: u64) -> &'static Card {
    let apart = |card: &&Card| {
        let generations = card.compute_capability.0.abs_diff(compute_capability.0);
        (generations, card.total_bytes.abs_diff(total_bytes))
    };
    catalog().iter().min_by_key(apart).unwrap_or(&catalog()[0])
}

/// The card that an error on one of so much memory is likely to be about. Drivers report a little less than the catalog has,
/// so several are near: the newest of them.
pub(crate) fn likely_card(total_bytes: u64) -> &'static Card {
    let distance = |card: &Card| card.total_bytes.abs_diff(total_bytes);
    let least = catalog().iter().map(distance).min().unwrap_or(0);
    let near = catalog().iter().filter(|card| distance(card) <= least.max(total_bytes / 32));
    near.max_by_key(|card| (card.compute_capability, Reverse(distance(card)))).unwrap_or(&catalog()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_names_these() {
        for name in ["t4", "rtx-3060-12gb", "rtx-4090", "a100-40gb", "rtx-5090", "h200"] {
            assert_eq!(card(name).unwrap().name, name);
        }
        // As CUDA said on one.
        assert_eq!(card("h200").unwrap().total_bytes, 143156 << 20);
    }

    #[test]
    fn no_card_promises_more_than_it_has() {
        const MEASURED_RESERVE: u64 = 628 << 20;
        for card in catalog() {
            assert!(card.reserve_bytes > MEASURED_RESERVE && card.reserve_bytes < card.total_bytes / 8, "{card:?}");
            assert!(card.bandwidth_gb_per_s > card.pcie_gb_per_s && card.pcie_gb_per_s > 0.0, "{card:?}");
            let [f32, tf32, f16, bf16] = [card.f32_tflops, card.tf32_tflops, card.f16_tflops, card.bf16_tflops];
            assert!(f32 > 0.0 && tf32 >= f32 && f16 >= tf32 && f16 >= bf16 && bf16 >= f32, "{card:?}");
        }
        assert!(catalog().windows(2).all(|w| w[0].total_bytes <= w[1].total_bytes));
        let names: std::collections::BTreeSet<&str> = catalog().iter().map(|card| card.name).collect();
        assert_eq!(names.len(), catalog().len());
    }

    #[test]
    fn the_range_is_wide_and_old_cards_are_only_planned_for() {
        assert!(catalog().len() >= 30);
        for (name, runs) in [("gtx-1080-ti", false), ("v100-32gb", false), ("t4", true), ("b200", true)] {
            assert_eq!(card(name).unwrap().can_run(), runs, "{name}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let error = card("RTX-4900").unwrap_err();
        assert_eq!(error.hint(), "did you mean `rtx-4090`?");
        assert!(card("abacus").unwrap_err().nearest.is_empty());
        assert_eq!(card("rtx-3060").unwrap_err().hint(), "did you mean `rtx-3060-ti` or `rtx-3060-12gb`?");
    }
}
