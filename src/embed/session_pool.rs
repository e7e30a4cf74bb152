//! A pool of model sessions. A session runs one text at a time, so there are a few, opened on demand; a query gets the
//! next free session before any waiting document.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::value::TensorRef;

use crate::built_in::{BUILT_IN_MODEL, BUILT_IN_NAME};
use crate::error::Error;
use crate::runtime::{Backend, Runtime, backend};
use crate::settings::{ModelChoice, Pooling, Settings};

pub(crate) struct SessionPool {
    backend: &'static Backend,
    source: Source,
    model: String,
    feeds: Vec<Feed>,
    output: String,
    pooling: Pooling,
    sessions_max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

/// The priority of a text: a person waits for a query, and nobody for a document of the index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Query,
    Document,
}

enum Source {
    BuiltIn,
    File(PathBuf),
}

/// The values of one input of the model.
#[derive(Clone, Copy)]
enum Feed {
    Ids,
    Ones(&'static str),
    Zeros(&'static str),
}

#[derive(Default)]
struct State {
    free: Vec<Session>,
    /// Sessions that are open or being opened.
    open: usize,
    queries_waiting: usize,
}

impl SessionPool {
    /// Opens the first session, so that an invalid model is an error at once.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Error> {
        let (source, model, pooling) = match &settings.model {
            ModelChoice::BuiltIn | ModelChoice::Remote(_) => {
                (Source::BuiltIn, BUILT_IN_NAME.to_owned(), Pooling::None)
            }
            ModelChoice::Onnx(own) => {
                // The runtimes report a missing file in different words, and as an invalid model.
                std::fs::File::open(&own.path).map_err(|source| Error::Read {
                    what: "model",
                    path: own.path.clone(),
                    source,
                })?;
                (Source::File(own.path.clone()), own.path.display().to_string(), own.pooling)
            }
        };
        let backend = backend(settings)?;
        let first = open_session(backend, &source, &model, settings.fast_start)?;
        let feeds = feeds(&first).map_err(|what| Error::Inputs { model: model.clone(), what })?;
        let output = output(&first, pooling).map_err(|what| Error::Outputs { model: model.clone(), what })?;
        let state = Mutex::new(State { free: vec![first], open: 1, queries_waiting: 0 });
        let sessions_max = settings.sessions_max.max(1);
        Ok(Self {
            backend,
            source,
            model,
            feeds,
            output,
            pooling,
            sessions_max,
            state,
            freed: Condvar::new(),
        })
    }

    pub(crate) fn runtime(&self) -> Runtime {
        self.backend.runtime.clone()
    }

    /// Runs the model on one text, given as its token ids. The vector is pooled, not normalised.
    pub(crate) fn run(&self, ids: &[i64], priority: Priority) -> Result<Vec<f32>, Error> {
        let mut lease = self.lease(priority)?;
        let session =
            lease.session.as_mut().ok_or_else(|| Error::Runtime("a session was lost".to_owned()))?;
        let failed = |source| Error::Run { model: self.model.clone(), source };
        let shape = [1, ids.len()];
        let (ones, zeros) = (vec![1_i64; ids.len()], vec![0_i64; ids.len()]);
        let mut inputs: Vec<(&str, TensorRef<'_, i64>)> = Vec::with_capacity(self.feeds.len());
        for feed in &self.feeds {
            let (name, values) = match *feed {
                Feed::Ids => ("input_ids", ids),
                Feed::Ones(name) => (name, &ones[..]),
                Feed::Zeros(name) => (name, &zeros[..]),
            };
            inputs.push((name, TensorRef::from_array_view((shape, values)).map_err(failed)?));
        }
        let outputs = session.run(inputs).map_err(failed)?;
        let missing =
            || Error::Outputs { model: self.model.clone(), what: "its output is missing".to_owned() };
        let tensor = outputs.get(&self.output).ok_or_else(missing)?;
        let (shape, values) = tensor.try_extract_tensor::<f32>().map_err(failed)?;
        let pooled = pool_tokens(self.pooling, shape, values, ids.len());
        pooled.map_err(|what| Error::Outputs { model: self.model.clone(), what })
    }

    #[cfg(test)]
    pub(crate) fn open_now(&self) -> usize {
        self.lock().open
    }

    #[cfg(test)]
    pub(crate) fn queries_waiting(&self) -> usize {
        self.lock().queries_waiting
    }

    pub(crate) fn lease(&self, priority: Priority) -> Result<Lease<'_>, Error> {
        let mut state = self.lock();
        loop {
            if priority == Priority::Query || state.queries_waiting == 0 {
                if let Some(session) = state.free.pop() {
                    return Ok(Lease { sessions: self, session: Some(session) });
                }
                if state.open < self.sessions_max {
                    state.open += 1;
                    drop(state);
                    // From here on the lease counts as an open session, and stops to count if opening fails.
                    let mut lease = Lease { sessions: self, session: None };
                    lease.session = Some(open_session(self.backend, &self.source, &self.model, false)?);
                    return Ok(lease);
                }
            }
            let waits = usize::from(priority == Priority::Query);
            state.queries_waiting += waits;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.queries_waiting -= waits;
        }
    }

    /// Closes the sessions that are not in use. The next text opens a session again.
    pub(crate) fn close_free(&self) {
        let mut state = self.lock();
        let free = std::mem::take(&mut state.free);
        state.open -= free.len();
        drop(state);
        drop(free);
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in use. It goes back to the pool when dropped, also by a panic.
pub(crate) struct Lease<'s> {
    sessions: &'s SessionPool,
    session: Option<Session>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        match self.session.take() {
            Some(session) => state.free.push(session),
            None => state.open -= 1,
        }
        drop(state);
        // All are woken, for a single one may be a document that has to let a query pass.
        self.sessions.freed.notify_all();
    }
}

fn open_session(backend: &Backend, source: &Source, model: &str, fast_start: bool) -> Result<Session, Error> {
    let commit = || -> ort::Result<Session> {
        // tract works only on an optimised graph. With ONNX Runtime, optimising takes 45 ms once and saves 10 ms for
        // every text.
        let level = match backend.runtime {
            Runtime::OnnxRuntime { .. } if fast_start => GraphOptimizationLevel::Disable,
            _ => GraphOptimizationLevel::All,
        };
        let mut builder = Session::builder(&backend.environment)?
            .with_optimization_level(level)
            .map_err(without_builder)?;
        if backend.runtime != Runtime::Tract {
            builder = builder.with_intra_threads(1).map_err(without_builder)?;
        }
        match source {
            Source::BuiltIn => builder.commit_from_memory(BUILT_IN_MODEL),
            Source::File(path) => builder.commit_from_file(path),
        }
    };
    commit().map_err(|source| Error::NotAModel {
        model: model.to_owned(),
        runtime: backend.runtime.to_string(),
        source,
    })
}

fn without_builder(error: ort::Error<SessionBuilder>) -> ort::Error {
    ort::Error::new(error.to_string())
}

fn feeds(session: &Session) -> Result<Vec<Feed>, String> {
    let names: Vec<&str> = session.inputs().iter().map(|input| input.name()).collect();
    if !names.contains(&"input_ids") {
        return Err(format!("it has no input `input_ids`, but `{}`", names.join("`, `")));
    }
    names
        .iter()
        .map(|&name| match name {
            "input_ids" => Ok(Feed::Ids),
            "attention_mask" => Ok(Feed::Ones("attention_mask")),
            "token_type_ids" => Ok(Feed::Zeros("token_type_ids")),
            other => Err(format!("the input `{other}` is unknown")),
        })
        .collect()
}

fn output(session: &Session, pooling: Pooling) -> Result<String, String> {
    let names: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
    let wanted: &[&str] = match pooling {
        Pooling::None => &["sentence_embedding"],
        Pooling::Mean | Pooling::Cls => &["last_hidden_state", "token_embeddings"],
    };
    match wanted.iter().find(|wanted| names.contains(wanted)) {
        Some(name) => Ok((*name).to_owned()),
        // A single output is used under any name; its shape is checked with each result.
        None if names.len() == 1 => Ok(names[0].to_owned()),
        None => Err(format!("it has no output `{}`, but `{}`", wanted.join("` or `"), names.join("`, `"))),
    }
}

/// Pools `[1, tokens, dimensions]` to `[dimensions]`; `[1, dimensions]` is pooled already.
fn pool_tokens(pooling: Pooling, shape: &[i64], values: &[f32], tokens: usize) -> Result<Vec<f32>, String> {
    let shape: Vec<usize> = shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
    match (pooling, shape.as_slice()) {
        (Pooling::None, [1, dimensions]) if *dimensions > 0 => Ok(values.to_vec()),
        (Pooling::Cls, [1, rows, dimensions]) if *rows == tokens && *dimensions > 0 => {
            Ok(values[..*dimensions].to_vec())
        }
        (Pooling::Mean, [1, rows, dimensions]) if *rows == tokens && *dimensions > 0 => {
            let mut mean = vec![0.0_f32; *dimensions];
            for row in values.chunks_exact(*dimensions) {
                for (sum, x) in mean.iter_mut().zip(row) {
                    *sum += x / tokens as f32;
                }
            }
            Ok(mean)
        }
        (_, shape) => Err(format!("{shape:?} for {tokens} tokens does not fit the pooling `{pooling:?}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooling_takes_the_mean_or_the_first_token() {
        let values = [1.0, 2.0, 3.0, 6.0];
        assert_eq!(pool_tokens(Pooling::Mean, &[1, 2, 2], &values, 2).unwrap(), [2.0, 4.0]);
        assert_eq!(pool_tokens(Pooling::Cls, &[1, 2, 2], &values, 2).unwrap(), [1.0, 2.0]);
        assert_eq!(pool_tokens(Pooling::None, &[1, 4], &values, 2).unwrap(), values);
    }

    #[test]
    fn an_output_of_another_shape_is_refused() {
        assert!(pool_tokens(Pooling::Mean, &[1, 4], &[0.0; 4], 2).is_err());
        assert!(pool_tokens(Pooling::None, &[1, 2, 2], &[0.0; 4], 2).is_err());
        assert!(pool_tokens(Pooling::Cls, &[1, 2, 2], &[0.0; 4], 3).is_err());
    }
}
