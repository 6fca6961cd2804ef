//! An out-of-memory log of a training that stays in PyTorch.

use crate::common::Desk;

const LOG: &str = "Epoch 2: 31%\nTraceback (most recent call last):\n  File \"train.py\", line 88, in <module>\n    loss.backward()\n\
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 360.00 MiB. GPU 0 has a total capacity of 23.56 GiB of which \
244.69 MiB is free. Process 12345 has 22.72 GiB memory in use. Of the allocated memory 21.90 GiB is allocated by PyTorch, and \
500.00 MiB is reserved by PyTorch but unallocated.\n";

#[test]
fn a_log_is_read_and_answered_with_settings() {
    let desk = Desk::new();
    desk.write("oom.log", LOG);
    let answer = desk.run(&["advise", "--log", "oom.log"]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    for word in ["360 MiB", "23.56 GiB"] {
        assert!(answer.stdout.contains(word), "no {word} in {}", answer.stdout);
    }
    desk.write("fine.log", "Epoch 2: 100%\nall good\n");
    let answer = desk.run(&["advise", "--log", "fine.log"]);
    super::told(&desk, "logs-without-error", &answer);
}
