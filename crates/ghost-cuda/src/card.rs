//! The card that is not there: what the launcher says about it, in the environment.

use std::env;
use std::sync::OnceLock;

pub(crate) struct Card {
    pub name: String,
    pub total_bytes: u64,
    /// What the driver, the context and other processes hold before the first allocation.
    pub context_bytes: u64,
    pub major: i32,
    pub minor: i32,
    pub multiprocessors: i32,
    pub cache_bytes: i32,
    /// CUDA's version as its own numbers have it: 13000 for 13.0.
    pub cuda: i32,
    /// 91900 for cuDNN 9.19.0.
    pub cudnn: i32,
    pub nccl: i32,
}

static CARD: OnceLock<Card> = OnceLock::new();

/// The card of this process.
pub(crate) fn card() -> &'static Card {
    CARD.get_or_init(from_environment)
}

fn from_environment() -> Card {
    Card {
        name: env::var("PLIMSOLL_GHOST_NAME").unwrap_or_else(|_| "NVIDIA H200".into()),
        total_bytes: number("TOTAL", 150_109_880_320),
        context_bytes: number("CONTEXT", 0),
        major: number("MAJOR", 9) as i32,
        minor: number("MINOR", 0) as i32,
        multiprocessors: number("SMS", 132) as i32,
        cache_bytes: number("CACHE", 62_914_560) as i32,
        cuda: number("CUDA", 13_000) as i32,
        cudnn: number("CUDNN", 91_900) as i32,
        nccl: number("NCCL", 22_809) as i32,
    }
}

fn number(key: &str, default: u64) -> u64 {
    let value = env::var(format!("PLIMSOLL_GHOST_{key}")).ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(default)
}

impl Card {
    /// Shared memory of one multiprocessor.
    pub(crate) fn shared_bytes(&self) -> i32 {
        match (self.major, self.minor) {
            (9 | 10, _) => 233_472,
            (8, 0 | 7) => 167_936,
            (8, _) | (12, _) => 102_400,
            (7, 5) => 65_536,
            _ => 98_304,
        }
    }

    /// The most of it that one block may ask for.
    pub(crate) fn shared_optin_bytes(&self) -> i32 {
        match self.major {
            7 if self.minor < 5 => 98_304,
            7 => 65_536,
            _ => self.shared_bytes() - 1024,
        }
    }

    pub(crate) fn threads_per_multiprocessor(&self) -> i32 {
        match (self.major, self.minor) {
            (7, 5) => 1024,
            (8, 0) | (9 | 10, _) | (..=7, _) => 2048,
            _ => 1536,
        }
    }

    pub(crate) fn blocks_per_multiprocessor(&self) -> i32 {
        match (self.major, self.minor) {
            (9 | 10, _) | (8, 0) | (..=6, _) | (7, 0) => 32,
            (8, 9) | (12, _) => 24,
            _ => 16,
        }
    }

    /// The architecture whose machine code a wheel would bring for this card: 8.9 runs code for 8.6, and so on.
    pub(crate) fn compiled_for(&self) -> i32 {
        match self.major * 10 + self.minor {
            87 | 89 => 86,
            103 => 100,
            121 => 120,
            61 => 60,
            same => same,
        }
    }
}
