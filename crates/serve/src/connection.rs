//! A connection that gives up on whoever does not read: a write that gets nowhere for a while ends it, and with it all
//! that the answer holds.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take no byte of what is written to it.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

pub(crate) struct Patient<T> {
    inner: T,
    patience: Duration,
    /// Runs while a write waits.
    clock: Option<Pin<Box<Sleep>>>,
}

impl<T> Patient<T> {
    pub(crate) fn new(inner: T) -> Patient<T> {
        Patient { inner, patience: LONGEST_WRITE, clock: None }
    }

    /// Passes on what a write came to; time runs only while it waits.
    fn timed<R>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.clock = None;
            return result;
        }
        let patience = self.patience;
        let clock = self.clock.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        ready!(clock.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.timed(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.timed(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.timed(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.timed(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_reads_slowly_is_waited_for_and_who_does_not_is_left() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient { patience: Duration::from_millis(200), ..Patient::new(near) };
        let reader = tokio::spawn(async move {
            let mut byte = [0; 16];
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_millis(60)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            far
        });
        near.write_all(&[1; 96]).await.unwrap();
        let _far = reader.await.unwrap();
        let error = near.write_all(&[1; 96]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
