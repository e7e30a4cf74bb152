//! Reads the plans that the model asks the person to approve with `ExitPlanMode`.

/// The name of the tool.
pub(crate) const TOOL: &str = "ExitPlanMode";

/// How the client begins a session that carries out an approved plan.
const MESSAGE: &str = "Implement the following plan:";
/// The heading of the plan in what the model is told; "(edited by user)" may follow.
const HEADING: &str = "\n## Approved Plan";

/// The plan in a person's message by which the client begins the work on it: the model wrote it, the person approved it.
///
/// ```
/// assert_eq!(transcript::approved_plan("Implement the following plan:\n\n# Retries"), Some("\n\n# Retries"));
/// assert_eq!(transcript::approved_plan("Retry twice."), None);
/// ```
pub fn approved_plan(message: &str) -> Option<&str> {
    message.trim_start().strip_prefix(MESSAGE)
}

/// An approved plan as the person's message, which is how the client passes it to a new session.
pub(crate) fn as_message(plan: &str) -> String {
    format!("{MESSAGE}\n\n{plan}")
}

/// The plan as it was approved, in what the model is told then. Some versions of the client leave it out.
pub(crate) fn approved_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(HEADING)?;
    let (_, plan) = rest.split_once(":\n")?;
    Some(plan.trim()).filter(|plan| !plan.is_empty())
}
