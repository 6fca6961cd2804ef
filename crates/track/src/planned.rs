//! What the plan of a run says it takes, by component.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A plan has seven; a file that has many is none.
const MOST: usize = 32;

#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    breakdown: BTreeMap<String, u64>,
}

/// Bytes at the planned peak by component, of a run's plan.json as it is; none where it does not say, as those of earlier
/// versions, and where it is damaged.
pub fn planned_components(plan: &[u8]) -> Vec<(String, u64)> {
    let plan: Option<Plan> = serde_json::from_slice(plan).ok();
    let found = plan.map(|plan| plan.breakdown).filter(|breakdown| breakdown.len() <= MOST);
    found.unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_its_components_and_what_is_none_says_nothing() {
        let plan = br#"{"version":1,"breakdown":{"weights":40,"activations":2},"layout":{"phases":[]}}"#;
        assert_eq!(planned_components(plan), [("activations".to_string(), 2), ("weights".to_string(), 40)]);
        let many: Vec<String> = (0..40).map(|n| format!("\"c{n}\":1")).collect();
        let many = format!("{{\"breakdown\":{{{}}}}}", many.join(","));
        for other in ["", "{}", "[]", "{\"breakdown\":{\"weights\":-1}}", "{\"breakdown\":7}", &many] {
            assert!(planned_components(other.as_bytes()).is_empty(), "{other}");
        }
    }
}
