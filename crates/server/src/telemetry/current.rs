//! Which request a thread works on at the moment, so that the lines it logs can say so.
//!
//! A span for that would cost every request more than its line is worth, and most log none.

use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::future::poll_fn;
use std::pin::pin;

use falaj_base::RequestId;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;

thread_local! {
    static CURRENT: Cell<Option<RequestId>> = const { Cell::new(None) };
}

/// Does the work of a request.
pub(crate) async fn under<T>(id: RequestId, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| within(id, || work.as_mut().poll(cx))).await
}

/// Does a piece of it that waits for nothing.
pub(crate) fn within<T>(id: RequestId, work: impl FnOnce() -> T) -> T {
    let _back = Back(CURRENT.replace(Some(id)));
    work()
}

/// Whoever was at work before is so again, also after a panic.
struct Back(Option<RequestId>);

impl Drop for Back {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Lines with the request's id at their end.
pub(super) struct Named<L> {
    pub(super) lines: L,
    pub(super) format: LogFormat,
}

impl<S, N, L> FormatEvent<S, N> for Named<L>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    L: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = CURRENT.get() else {
            return self.lines.format_event(ctx, writer, event);
        };
        let mut line = String::new();
        self.lines.format_event(ctx, Writer::new(&mut line), event)?;
        named(&mut line, self.format, id);
        writer.write_str(&line)
    }
}

/// Writes the id behind what a line says.
fn named(line: &mut String, format: LogFormat, id: RequestId) {
    let end = match format {
        LogFormat::Text => line.trim_end().len(),
        LogFormat::Json => line.rfind('}').unwrap_or(line.len()),
    };
    line.truncate(end);
    // Writing to a text cannot fail.
    let _ = match format {
        LogFormat::Text => writeln!(line, " request={id}"),
        LogFormat::Json => writeln!(line, ",\"request\":\"{id}\"}}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_which_request_it_is_about() {
        let id = RequestId::new();
        let mut line = "INFO falaj::access: status=200\n".to_owned();
        named(&mut line, LogFormat::Text, id);
        assert_eq!(line, format!("INFO falaj::access: status=200 request={id}\n"));
        let mut line = "{\"level\":\"INFO\",\"why\":\"a } in it\"}\n".to_owned();
        named(&mut line, LogFormat::Json, id);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["request"], id.to_string());
        assert_eq!(read["why"], "a } in it");
        assert!(line.ends_with('\n'));
    }

    #[tokio::test]
    async fn a_thread_is_at_one_request_at_a_time() {
        let (one, other) = (RequestId::new(), RequestId::new());
        let seen = |id| {
            under(id, async move {
                assert_eq!(CURRENT.get(), Some(id));
                tokio::task::yield_now().await;
                CURRENT.get() == Some(id)
            })
        };
        assert_eq!(tokio::join!(seen(one), seen(other)), (true, true));
        assert_eq!(CURRENT.get(), None);
    }
}
