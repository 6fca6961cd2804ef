//! Memory against time: the plans of a recipe of which none is both smaller and faster than another.

use super::attempt::{Attempt, Outline, attempt};
use super::parallel::on_all_cores;
use super::{PLENTY, with_budget};
use crate::recipe::Recipe;
use crate::train::{Device, TrainError, budget_bytes};
use serde::Serialize;

/// Budgets tried between the smallest plan and the fastest.
const BUDGETS: usize = 24;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontierPoint {
    #[serde(flatten)]
    pub plan: Outline,
    /// Within the budget of the recipe.
    pub fits: bool,
}

/// From the smallest plan to the fastest. Pins of the recipe hold for every point.
pub fn frontier_of(recipe: &Recipe, device: &Device) -> Result<Vec<FrontierPoint>, TrainError> {
    let budget = budget_bytes(recipe, device);
    let at = |budget: u64| attempt(&with_budget(recipe, budget), device);
    let ends = (plan_of(at(1)?)?, plan_of(at(PLENTY)?)?);
    let budgets = between(ends.0.planned_peak_bytes, ends.1.planned_peak_bytes);
    let attempts = on_all_cores(&budgets, &|_, _| (), |&budget| at(budget));
    let mut plans = vec![ends.0, ends.1];
    for attempt in attempts {
        plans.push(plan_of(attempt?)?);
    }
    let point = |plan: Outline| FrontierPoint { fits: plan.planned_peak_bytes <= budget, plan };
    Ok(pareto(plans).into_iter().map(point).collect())
}

fn plan_of(attempt: Attempt) -> Result<Outline, TrainError> {
    let Attempt { plan, refused, .. } = attempt;
    plan.ok_or_else(|| TrainError::Refused {
        cause: refused.unwrap_or_default(),
        hint: "change what the recipe pins".into(),
    })
}

/// Budgets in equal ratios, for halving what there is matters alike at every size.
fn between(smallest: u64, fastest: u64) -> Vec<u64> {
    let ratio = (fastest as f64 / smallest.max(1) as f64).powf(1.0 / (BUDGETS + 1) as f64);
    let budgets = (1..=BUDGETS).map(|i| (smallest as f64 * ratio.powi(i as i32)) as u64);
    budgets.filter(|&budget| budget > smallest && budget < fastest).collect()
}

/// Without those that another beats in memory or time and equals in the other; by memory.
fn pareto(mut plans: Vec<Outline>) -> Vec<Outline> {
    plans.sort_by(|a, b| {
        let by_bytes = a.planned_peak_bytes.cmp(&b.planned_peak_bytes);
        by_bytes.then(a.predicted_step_ms.total_cmp(&b.predicted_step_ms))
    });
    let mut best = f64::INFINITY;
    plans.retain(|plan| {
        let faster = plan.predicted_step_ms < best;
        best = best.min(plan.predicted_step_ms);
        faster
    });
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bytes: u64, ms: f64) -> Outline {
        Outline {
            micro_batch: 1,
            accumulation: 1,
            recompute: "none",
            attention: "fused",
            arena_bytes: bytes,
            planned_peak_bytes: bytes,
            predicted_step_ms: ms,
        }
    }

    #[test]
    fn beaten_plans_are_left_out() {
        let plans = vec![plan(30, 5.0), plan(10, 9.0), plan(20, 9.5), plan(20, 7.0), plan(40, 5.0), plan(10, 9.0)];
        let kept: Vec<(u64, f64)> = pareto(plans).iter().map(|p| (p.planned_peak_bytes, p.predicted_step_ms)).collect();
        assert_eq!(kept, [(10, 9.0), (20, 7.0), (30, 5.0)]);
    }

    #[test]
    fn budgets_lie_strictly_between_the_ends() {
        let budgets = between(1 << 20, 1 << 30);
        assert_eq!(budgets.len(), BUDGETS);
        assert!(budgets.is_sorted() && budgets[0] > 1 << 20 && budgets[BUDGETS - 1] < 1 << 30);
        assert!(between(7, 7).is_empty() && between(0, 0).is_empty());
    }
}
