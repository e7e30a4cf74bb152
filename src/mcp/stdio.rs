//! The transport: one JSON-RPC message a line on stdin and stdout.
//!
//! Every line gets an answer or an error, with the request's id where one can be read; only notifications and answers
//! get none. rmcp's own transport ignores lines that are no JSON, answers others without their id, and ends the
//! server at a notification before the handshake: a client that waits for an answer would wait for ever.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::sync::{Mutex, Notify, mpsc};

use crate::message::{self, Message, Refusal};

/// The longest line that is read: far above what a client sends, so that a line without an end costs no more memory.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// How many messages are read ahead of the server.
const READ_AHEAD: usize = 16;

/// A connection to a client. Clones share it, so that a failed handshake can be repeated.
#[derive(Clone)]
pub(crate) struct Stdio {
    messages: Arc<Mutex<mpsc::Receiver<Message>>>,
    output: Output,
    in_flight: InFlight,
}

/// Where messages are written, one at a time.
#[derive(Clone)]
struct Output {
    writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
    /// Notified when the client does not read any more.
    closed: Arc<Notify>,
}

/// The ids of requests that are not answered yet.
#[derive(Clone, Default)]
struct InFlight(Arc<SyncMutex<HashSet<RequestId>>>);

impl Stdio {
    /// The connection on this process's stdin and stdout. Ends with either of them.
    pub(crate) fn open() -> Self {
        let stdio = Self::new(tokio::io::stdin(), tokio::io::stdout());
        let closed = Arc::clone(&stdio.output.closed);
        tokio::spawn(async move {
            system::terminal::stdout_closed().await;
            tracing::info!("the client has closed stdout");
            closed.notify_one();
        });
        stdio
    }

    fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (sender, messages) = mpsc::channel(READ_AHEAD);
        let output = Output { writer: Arc::new(Mutex::new(Box::new(output))), closed: Arc::default() };
        let in_flight = InFlight::default();
        let this = Self {
            messages: Arc::new(Mutex::new(messages)),
            output: output.clone(),
            in_flight: in_flight.clone(),
        };
        tokio::spawn(async move {
            if let Err(error) = read_messages(BufReader::new(input), sender, &output, &in_flight).await {
                tracing::info!(%error, "the connection has ended");
            }
        });
        this
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &message {
            JsonRpcMessage::Response(response) => self.in_flight.remove(&response.id),
            JsonRpcMessage::Error(error) => error.id.iter().for_each(|id| self.in_flight.remove(id)),
            _ => {}
        }
        let output = self.output.clone();
        async move { output.write(serde_json::to_vec(&message)?).await }
    }

    async fn receive(&mut self) -> Option<Message> {
        let mut messages = self.messages.lock().await;
        tokio::select! {
            message = messages.recv() => message,
            () = self.output.closed.notified() => None,
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    async fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let mut writer = self.writer.lock().await;
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        let written = written.await;
        if written.is_err() {
            self.closed.notify_one();
        }
        written
    }
}

impl InFlight {
    /// Notes a request until it is answered or cancelled. A second one with its id could not be told from it, and
    /// rmcp would answer only one of them.
    fn note(&self, message: Message) -> Result<Message, Refusal> {
        match &message {
            JsonRpcMessage::Request(request) => {
                let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if !ids.insert(request.id.clone()) {
                    return Err(Refusal::invalid(
                        json!(request.id),
                        "a request with this `id` is not answered yet",
                    ));
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    cancelled.params.request_id.iter().for_each(|id| self.remove(id));
                }
            }
            _ => {}
        }
        Ok(message)
    }

    fn remove(&self, id: &RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// Passes messages on, and refuses what is none, until the input ends.
async fn read_messages(
    mut input: impl AsyncBufRead + Unpin,
    sender: mpsc::Sender<Message>,
    output: &Output,
    in_flight: &InFlight,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let received = if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            skip_line(&mut input).await?;
            vec![Err(Refusal::invalid(Value::Null, "the message is longer than 16 MiB"))]
        } else {
            message::parse(&line)
        };
        for message in received {
            match message.and_then(|message| in_flight.note(message)) {
                Ok(message) => {
                    if sender.send(message).await.is_err() {
                        return Ok(());
                    }
                }
                Err(refusal) => output.write(refusal.to_json().to_string().into_bytes()).await?,
            }
        }
    }
}

/// Reads to the end of the line.
async fn skip_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    let mut part = Vec::new();
    loop {
        part.clear();
        let count = (&mut *input).take(LINE_BYTES_MAX).read_until(b'\n', &mut part).await?;
        if count == 0 || part.ends_with(b"\n") {
            return Ok(());
        }
    }
}
