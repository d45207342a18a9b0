//! Options of a command: how the task is completed, retried and spread.

use super::field::{Field, Submitted};
use super::reason::{ReasonCode, Refusal};
use crate::due::Completion;
use crate::options::{
    BadOption, TaskOptions, parse_ack_timeout, parse_completion, parse_max_attempts, parse_max_stalls,
};

/// Options that only tasks have that wait for an ack.
const OF_ACKS: [Field; 4] = [Field::MaxAttempts, Field::Backoff, Field::AckTimeout, Field::MaxStalls];

/// What a command says.
pub(super) fn given(submitted: &Submitted<'_>) -> Result<TaskOptions, Refusal> {
    Ok(TaskOptions {
        completion: option(submitted, Field::Completion, parse_completion)?,
        max_attempts: option(submitted, Field::MaxAttempts, parse_max_attempts)?,
        backoff: option(submitted, Field::Backoff, str::parse)?,
        ack_timeout_ms: option(submitted, Field::AckTimeout, parse_ack_timeout)?,
        max_stalls: option(submitted, Field::MaxStalls, parse_max_stalls)?,
        spread: option(submitted, Field::Spread, str::parse)?,
        window: option(submitted, Field::Window, str::parse)?,
    })
}

/// The same with the defaults of its callback topic. What the command itself says must make sense together: an option
/// that would do nothing is no option.
pub(super) fn complete(
    submitted: &Submitted<'_>,
    given: &TaskOptions,
    defaults: TaskOptions,
) -> Result<TaskOptions, Refusal> {
    let all = given.or(defaults);
    if all.completion.unwrap_or_default() == Completion::OnDelivery
        && let Some(field) = OF_ACKS.into_iter().find(|field| submitted.bytes(*field).is_some())
    {
        let problem = "stands on a task that is done when it is delivered";
        return Err(Refusal::of_field(ReasonCode::NotOnAck, submitted.name(field), problem));
    }
    Ok(all)
}

fn option<T>(
    submitted: &Submitted<'_>,
    field: Field,
    parse: impl FnOnce(&str) -> Result<T, BadOption>,
) -> Result<Option<T>, Refusal> {
    let Some(text) = submitted.text(field)? else { return Ok(None) };
    parse(text).map(Some).map_err(|bad| {
        let BadOption { part, problem, example } = bad;
        let problem = if part == text {
            format!("{problem}: write {example}")
        } else {
            format!("has the part {part:?}, which {problem}: write {example}")
        };
        Refusal::of_value(ReasonCode::InvalidOption, submitted.name(field), text.as_bytes(), &problem)
    })
}
