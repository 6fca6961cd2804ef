//! plimsoll: a training step is a static program, so its memory can be laid out before it runs.
