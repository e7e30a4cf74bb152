//! The user's own model in the ONNX Runtime.

use std::sync::{Mutex, PoisonError};

use ort::session::Session;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ort::value::TensorRef;

use crate::error::Error;
use crate::runtime::{Backend, Runtime, backend};
use crate::settings::{OnnxModel, Pooling, Settings};

/// A loaded model. It runs one text at a time.
pub(crate) struct OnnxSession {
    runtime: Runtime,
    model: String,
    feeds: Vec<Feed>,
    output: String,
    pooling: Pooling,
    session: Mutex<Session>,
}

/// The values of one input of the model.
#[derive(Clone, Copy)]
enum Feed {
    Ids,
    Ones(&'static str),
    Zeros(&'static str),
}

impl OnnxSession {
    pub(crate) fn open(own: &OnnxModel, settings: &Settings) -> Result<Self, Error> {
        // The runtime reports a missing file as an invalid model.
        std::fs::File::open(&own.path).map_err(|source| Error::Read {
            what: "model",
            path: own.path.clone(),
            source,
        })?;
        let (model, pooling) = (own.path.display().to_string(), own.pooling);
        let Backend { environment, runtime } = backend(settings)?;
        let open = || -> ort::Result<Session> {
            Session::builder(environment)?
                .with_optimization_level(GraphOptimizationLevel::All)
                .map_err(without_builder)?
                .with_intra_threads(1)
                .map_err(without_builder)?
                .commit_from_file(&own.path)
        };
        let session = open().map_err(|source| Error::NotAModel {
            model: model.clone(),
            runtime: runtime.to_string(),
            source,
        })?;
        let feeds = feeds(&session).map_err(|what| Error::Inputs { model: model.clone(), what })?;
        let output =
            output(&session, pooling).map_err(|what| Error::Outputs { model: model.clone(), what })?;
        Ok(Self { runtime: runtime.clone(), model, feeds, output, pooling, session: Mutex::new(session) })
    }

    pub(crate) fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Runs the model on one text, given as its token ids. The vector is pooled, not normalised.
    pub(crate) fn run(&self, ids: &[u32]) -> Result<Vec<f32>, Error> {
        let failed = |source| Error::Run { model: self.model.clone(), source };
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let shape = [1, ids.len()];
        let (ones, zeros) = (vec![1_i64; ids.len()], vec![0_i64; ids.len()]);
        let mut inputs: Vec<(&str, TensorRef<'_, i64>)> = Vec::with_capacity(self.feeds.len());
        for feed in &self.feeds {
            let (name, values) = match *feed {
                Feed::Ids => ("input_ids", &ids[..]),
                Feed::Ones(name) => (name, &ones[..]),
                Feed::Zeros(name) => (name, &zeros[..]),
            };
            inputs.push((name, TensorRef::from_array_view((shape, values)).map_err(failed)?));
        }
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run(inputs).map_err(failed)?;
        let missing =
            || Error::Outputs { model: self.model.clone(), what: "its output is missing".to_owned() };
        let tensor = outputs.get(&self.output).ok_or_else(missing)?;
        let (shape, values) = tensor.try_extract_tensor::<f32>().map_err(failed)?;
        let pooled = pool_tokens(self.pooling, shape, values, ids.len());
        pooled.map_err(|what| Error::Outputs { model: self.model.clone(), what })
    }
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
