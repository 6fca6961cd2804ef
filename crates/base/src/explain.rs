//! Errors that say what to do: whose fault it is, and how to go on.

#![deny(missing_docs)]

/// Whose fault an error is. The command's exit code follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine, the disk, the training itself.
    Failed,
    /// What was given: a recipe, a file, a flag.
    BadInput,
    /// There is not enough memory.
    DoesNotFit,
}

/// An error that knows a way out.
pub trait Explain: std::fmt::Display {
    /// Whose fault it is.
    fn fault(&self) -> Fault;

    /// What to do about it, best first; none where the message itself says it.
    fn hints(&self) -> Vec<String>;

    /// The whole message, where it is more than the error's own words.
    fn message(&self) -> String {
        self.to_string()
    }

    /// Whether memory was what lacked.
    fn lacks_memory(&self) -> bool {
        self.fault() == Fault::DoesNotFit
    }
}

/// What is nobody's fault but ours.
pub const DEFECT: &str = "this is a defect of plimsoll: please report it with the recipe";
