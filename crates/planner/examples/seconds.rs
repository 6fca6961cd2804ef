//! How long plans and refusals take, and what they are: `cargo run --release -p plimsoll-planner --example seconds --
//! recipes/flan-t5-xl.toml@rtx-3060-12gb …`. Two versions that print the same but for `seconds` plan alike.

use plimsoll_models::recipe::Draft;
use plimsoll_planner::choose::{Planned, plan};
use plimsoll_planner::whatif::{Outline, ladder};
use plimsoll_planner::{Device, PlanFailure};
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    for pair in std::env::args().skip(1) {
        let (recipe, card) = pair.split_once('@').ok_or("RECIPE@CARD")?;
        let (draft, device) = (Draft::read(Path::new(recipe), &[])?, Device::from_name(card)?);
        let start = Instant::now();
        let answer = answer(&draft, &device)?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{}", json!({ "recipe": recipe, "card": card, "answer": answer, "seconds": seconds }));
    }
    Ok(())
}

fn answer(draft: &Draft, device: &Device) -> Result<Value, Box<dyn Error>> {
    match plan(&draft.with(&[])?, device) {
        Ok(planned) => Ok(json!({ "plan": Outline::from(&planned), "settings": planned.choice.settings })),
        Err(PlanFailure::DoesNotFit(smallest)) => refusal(draft, device, &smallest),
        Err(other) => Err(other.into()),
    }
}

fn refusal(draft: &Draft, device: &Device, smallest: &Planned) -> Result<Value, Box<dyn Error>> {
    let ladder = ladder(draft, device, smallest, &Device::catalog(), &|_, _| ())?;
    Ok(json!({ "ladder": ladder, "settings": smallest.choice.settings }))
}
