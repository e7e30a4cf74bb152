//! `nugget server`: a team's server, its brains, tokens and state.

mod admin;
mod audit;
mod database;
mod demo;
mod run;

use crate::context::Context;
use crate::error::CliError;

const AFTER: &str = "\
A server takes captures from laptops and CI runners, works on them, opens pull
requests, and answers questions about its brains. All state is in PostgreSQL 14
or later with pgvector 0.8 or later, and in git: run as many servers as you
like, each can end at any time. docs/team.md says how to run it.

Examples:
  nugget server demo
  export NUGGET_DATABASE=postgres://nugget@db.example.com/nugget
  nugget server migrate
  nugget server brain add payments https://github.com/acme/brain.git
  nugget server brain list
  nugget server token create ada payments --days 90
  nugget server token list
  nugget server token revoke 3
  nugget server --listen 127.0.0.1:8080
  nugget server --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem
  nugget server status
  nugget server audit
  nugget server retry";

#[derive(clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    command: Option<ServerCommand>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(clap::Subcommand)]
enum ServerCommand {
    /// Show the whole loop: a private PostgreSQL, three servers, two people
    Demo(demo::ServerDemoArgs),
    /// Create the tables, or bring them up to date
    Migrate(admin::MigrateArgs),
    /// Add and list brains
    Brain(admin::BrainArgs),
    /// Create, list and revoke tokens
    Token(admin::TokenArgs),
    /// Retry captures that failed for good
    Retry(admin::ServerRetryArgs),
    /// Show servers, queues and brains
    Status(admin::ServerStatusArgs),
    /// Show who did what
    Audit(audit::AuditArgs),
}

impl ServerArgs {
    pub(crate) fn run(self, context: Context) -> Result<(), CliError> {
        match self.command {
            None => self.run.run(context),
            Some(ServerCommand::Demo(args)) => args.run(&context),
            Some(ServerCommand::Migrate(args)) => args.run(),
            Some(ServerCommand::Brain(args)) => args.run(&context),
            Some(ServerCommand::Token(args)) => args.run(),
            Some(ServerCommand::Retry(args)) => args.run(),
            Some(ServerCommand::Status(args)) => args.run(),
            Some(ServerCommand::Audit(args)) => args.run(),
        }
    }
}
