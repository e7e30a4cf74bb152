//! Questions to the team's server that a brain belongs to.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::JsonObject;
use serde_json::Value;
use team_client::{CurrentServer, TeamAnswer};
use transcript::redact::redact;

/// How long the server may take for an answer. An answer from this machine takes a hundredth of it.
const BUDGET: Duration = Duration::from_millis(1500);
/// For so long after it has failed to answer, the server is not asked again: no session waits for it at each call.
const PAUSE: Duration = Duration::from_secs(30);

/// A question that is to be answered on this machine.
pub(crate) struct AskedHere {
    /// What to say below the answer: why it is not the server's. Empty if the brain belongs to none.
    pub(crate) why: String,
}

/// The team's server that a brain belongs to, if any, and when it last failed to answer.
pub(crate) struct ServerLink {
    server: CurrentServer,
    begun: Instant,
    /// In milliseconds from `begun`, plus one; 0 for never.
    failed_at: AtomicU64,
}

impl ServerLink {
    pub(crate) fn new(state_folder: &Path) -> Self {
        Self { server: CurrentServer::new(state_folder), begun: Instant::now(), failed_at: AtomicU64::new(0) }
    }

    /// The answer of the team's server, which is sent no recognised secret.
    pub(crate) async fn ask(&self, arguments: &JsonObject) -> Result<TeamAnswer, AskedHere> {
        let server = match self.server.get() {
            Ok(Some(server)) => server,
            Ok(None) => return Err(AskedHere { why: String::new() }),
            Err(error) => return Err(AskedHere { why: format!("\nFrom this machine's index: {error}.\n") }),
        };
        if !server.may_ask() {
            // As was said at the login.
            return Err(AskedHere { why: String::new() });
        }
        let url = server.url();
        let here = |why: &str| {
            Err(AskedHere { why: format!("\nFrom this machine's index and not from {url}: {why}.\n") })
        };
        let now = self.begun.elapsed().as_millis() as u64 + 1;
        let failed_at = self.failed_at.load(Ordering::SeqCst);
        if failed_at > 0 && now.saturating_sub(failed_at) < PAUSE.as_millis() as u64 {
            return here("the team server did not answer a moment ago");
        }
        let arguments = redacted_fields(arguments);
        match server.client.ask(server.brain(), &arguments, BUDGET).await {
            Ok(answer) => {
                self.failed_at.store(0, Ordering::SeqCst);
                Ok(answer)
            }
            Err(error) => {
                tracing::warn!(%error, "the team's server did not answer");
                self.failed_at.store(now, Ordering::SeqCst);
                here(&error.to_string())
            }
        }
    }
}

fn redacted_fields(fields: &JsonObject) -> JsonObject {
    fields.iter().map(|(key, value)| (key.clone(), redacted(value))).collect()
}

/// A value whose strings have no recognised secrets.
fn redacted(value: &Value) -> Value {
    match value {
        Value::String(text) => redact(text).into(),
        Value::Array(values) => values.iter().map(redacted).collect(),
        Value::Object(fields) => redacted_fields(fields).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use serde_json::json;
    use team_client::Login;

    use super::*;

    /// Answers one request, and returns its body.
    fn answer_once(listener: &TcpListener) -> Value {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(&stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer =
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"From the team."}]}}"#;
        write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn a_question_to_the_team_server_is_redacted() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let login = Login {
            url: format!("http://{}", listener.local_addr().unwrap()),
            brain: "payments".to_owned(),
            subject: "ada".to_owned(),
            scopes: Vec::new(),
            expires: None,
            token: "ngt_example".to_owned(),
        };
        login.write(folder.path()).unwrap();
        let server = std::thread::spawn(move || answer_once(&listener));
        let key = format!("ghp_{}", "7Qx2Vb9Lk4Zt8Wn1Rc6Yd3Mf5Hj0Gs7Pa2Ue");
        let arguments = json!({ "task_description": format!("why is {key} refused?"), "files": [format!("{key}.rs")], "depth": "deep" });
        let answer = ServerLink::new(folder.path()).ask(arguments.as_object().unwrap()).await;
        assert!(answer.is_ok_and(|answer| answer.text == "From the team."));
        let sent = server.join().unwrap()["params"]["arguments"].clone();
        assert!(!sent.to_string().contains("7Qx2Vb"), "{sent}");
        assert!(sent["task_description"].as_str().unwrap().starts_with("why is [redacted: "), "{sent}");
        assert_eq!((sent["files"].as_array().unwrap().len(), &sent["depth"]), (1, &json!("deep")));
    }
}
