//! Whether a feed-forward stores its hidden values. No key: where the device has kernels for it, a fused one is far
//! smaller, and faster but for steps of few tokens, which it makes a few percent slower: nothing to weigh up.

use super::{Lever, Question, Situation};
use crate::program::Settings;
use plimsoll_models::families::FeedForwardForm;

pub(super) struct FeedForward;

impl Lever for FeedForward {
    fn key(&self) -> &'static str {
        "feed_forward"
    }

    fn start(&self, at: &Situation<'_>, settings: &mut Settings) {
        settings.feed_forward = match at.pins.fused_feed_forward && at.family.has_fused_feed_forward() {
            true => FeedForwardForm::Fused,
            false => FeedForwardForm::Plain,
        };
    }

    fn question(&self, _at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let other = Settings { feed_forward: FeedForwardForm::Plain, ..s.clone() };
        let (choice, reason) = ("fused".into(), "hidden values are never stored");
        (s.feed_forward == FeedForwardForm::Fused).then_some(Question { choice, other, is_pinned: false, reason })
    }
}
