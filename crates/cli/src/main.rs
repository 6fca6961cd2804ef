//! The program `plimsoll`.

use std::process::ExitCode;

// Proves that steps allocate nothing, and measures by how much they grow the heap.
#[global_allocator]
static ALLOCATOR: plimsoll_base::heap::CountingAllocator = plimsoll_base::heap::CountingAllocator;

fn main() -> ExitCode {
    plimsoll_cli::run()
}
