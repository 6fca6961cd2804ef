//! Whether attention stores its scores, or never does (flash attention).

use super::{Lever, Move, Question, Situation};
use crate::choose::ChooseError;
use crate::program::Settings;
use plimsoll_base::names::Named;
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::{Choice, Memory};

pub(super) struct Attention;

impl Lever for Attention {
    fn key(&self) -> &'static str {
        "attention"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.attention != Choice::Auto
    }

    fn check(&self, at: &Situation<'_>) -> Result<(), ChooseError> {
        match at.pins.attention {
            Some(AttentionForm::Materialized) if !at.family.has_attention_forms() => Err(ChooseError::Refused {
                cause: "memory.attention = \"materialized\" is not available for this family".into(),
                hint: "leave it out: its attention never stores the scores".into(),
            }),
            _ => Ok(()),
        }
    }

    fn start(&self, at: &Situation<'_>, settings: &mut Settings) {
        settings.attention = at.pins.attention.unwrap_or(AttentionForm::Fused);
    }

    fn candidates(&self, at: &Situation<'_>, like: &Settings) -> Vec<Settings> {
        if at.pins.attention.is_some() || !at.family.has_attention_forms() {
            return Vec::new();
        }
        let forms = [AttentionForm::Fused, AttentionForm::Materialized];
        forms.into_iter().map(|attention| Settings { attention, ..like.clone() }).collect()
    }

    /// Stored scores leave room for smaller micro-batches only.
    fn other_starts(&self, at: &Situation<'_>, start: &Settings) -> Vec<Settings> {
        self.candidates(at, start).into_iter().filter(|other| other.attention != start.attention).collect()
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let reason = match s.attention {
            AttentionForm::Fused => "the scores are never stored",
            AttentionForm::Materialized => "faster, and the scores fit",
        };
        let other = Settings { attention: other_than(s.attention), ..s.clone() };
        let (choice, is_pinned) = (s.attention.name().into(), at.pins.attention.is_some());
        at.family.has_attention_forms().then_some(Question { choice, other, is_pinned, reason })
    }

    fn neighbours(&self, at: &Situation<'_>, from: &Settings) -> Vec<Move> {
        if !at.family.has_attention_forms() {
            return Vec::new();
        }
        let attention = other_than(from.attention);
        vec![Move::to(from.attention, attention, Settings { attention, ..from.clone() })]
    }
}

fn other_than(form: AttentionForm) -> AttentionForm {
    match form {
        AttentionForm::Fused => AttentionForm::Materialized,
        AttentionForm::Materialized => AttentionForm::Fused,
    }
}
