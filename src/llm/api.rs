//! The protocols that models' servers speak.

/// The protocol of a model's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// The Claude Messages API.
    Messages,
    /// Chat completions as OpenAI defined them: Ollama, LM Studio, llama.cpp, vLLM and many providers.
    OpenAi,
}

impl Api {
    /// The name in the ledger of costs and in what a model found.
    pub fn label(self) -> &'static str {
        match self {
            Self::Messages => "claude-api",
            Self::OpenAi => "openai-compatible",
        }
    }

    /// The address of the company that defined it.
    pub fn official_url(self) -> &'static str {
        match self {
            Self::Messages => "https://api.anthropic.com",
            Self::OpenAi => "https://api.openai.com",
        }
    }

    /// The environment variable of its key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Messages => "ANTHROPIC_API_KEY",
            Self::OpenAi => "OPENAI_API_KEY",
        }
    }
}
