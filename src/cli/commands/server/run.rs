//! `nugget server --listen`: runs one server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brain::{Brain, Config, StatePaths};
use team_service::TeamServer;
use tokio::sync::watch;

use super::database::Database;
use crate::context::Context;
use crate::error::{CliError, USAGE};
use crate::whole_number::whole_number;
use crate::{async_runtime, extractor, output, settings};

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    database: Database,
    /// The address to listen on; plain HTTP only on this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// Serve plain HTTP on any address: behind a proxy that ends TLS
    #[arg(long)]
    insecure_plain: bool,
    /// The address that clients use, as https://brains.example.com
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Accept JWTs of this issuer, too; they name brains in `nugget_brains` and scopes in `scope`
    #[arg(long, value_name = "URL", requires_all = ["jwt_audience", "jwks_url"])]
    jwt_issuer: Option<String>,
    /// What a JWT's audience must contain
    #[arg(long, value_name = "NAME", requires = "jwt_issuer")]
    jwt_audience: Option<String>,
    /// Where the issuer publishes its keys
    #[arg(long, value_name = "URL", requires = "jwt_issuer")]
    jwks_url: Option<String>,
    /// Let everyone read /metrics
    #[arg(long)]
    open_metrics: bool,
    /// The folder for clones and indexes, which can be made again [default: in the state folder]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
    /// Seconds until another server takes over what this one does not renew
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole_number(3_u64..=3600))]
    lease: u64,
    /// Seconds between two syncs of a brain with git
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole_number(1_u64..=86400))]
    sync: u64,
    /// How many brains are worked on at once, and how many synced beside them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole_number(1_u64..=256))]
    brains: u64,
    /// Do not create or change tables: fail if they are not up to date
    #[arg(long)]
    no_migrate: bool,
}

impl RunArgs {
    pub(super) fn run(self, context: Context) -> Result<(), CliError> {
        let telemetry = server::Telemetry::from_environment()?;
        context.log_server(telemetry.as_ref());
        let config = context.config()?;
        let store = self.database.connect()?;
        if !self.no_migrate {
            store.migrate()?;
        }
        let http = self.http_settings()?;
        let work = work_settings(&self, &config)?;
        // Connections end by blocking, which the last owner of the store must not do within the runtime.
        let _connections = store.clone();
        let runtime = async_runtime::multi_thread()?;
        let (signal, bound) = runtime.block_on(async {
            // First of all, so that no signal is missed.
            let signal = system::signal::end_signal()?;
            Ok::<_, CliError>((signal, server::bind(http).await?))
        })?;
        // Only who can be reached counts as a server.
        let team_server = TeamServer::new(store, work)?;
        let served = runtime.block_on(serve(signal, bound, team_server));
        if let Some(telemetry) = telemetry {
            telemetry.shutdown();
        }
        // Dropping it would wait for what the server has stopped waiting for: a clone, a push, a publication.
        runtime.shutdown_background();
        served
    }

    fn http_settings(&self) -> Result<server::Settings, CliError> {
        let mut settings = server::Settings::new(self.listen);
        settings.tls = self
            .tls_cert
            .clone()
            .zip(self.tls_key.clone())
            .map(|(certificate, key)| server::TlsFiles { certificate, key });
        settings.insecure_plain = self.insecure_plain;
        settings.public_url.clone_from(&self.public_url);
        settings.open_metrics = self.open_metrics;
        if let (Some(issuer), Some(audience), Some(jwks_url)) =
            (&self.jwt_issuer, &self.jwt_audience, &self.jwks_url)
        {
            settings.jwt = Some(server::JwtSettings {
                issuer: issuer.clone(),
                audience: audience.clone(),
                jwks_url: jwks_url.clone(),
                refetch_interval: Duration::from_secs(60),
            });
        }
        if !self.listen.ip().is_loopback() && settings.tls.is_none() && !self.insecure_plain {
            return Err(CliError::new(format!(
                "{} is not an address of this machine alone, and there is no certificate",
                self.listen
            ))
            .code(USAGE)
            .hint("give --tls-cert and --tls-key, or --insecure-plain behind a proxy that ends TLS"));
        }
        if !self.listen.ip().is_loopback() && self.public_url.is_none() {
            output::note(
                "warning: without --public-url, questions are answered only under an address of this machine",
            );
        }
        Ok(settings)
    }
}

/// How captures are worked on, by this machine's configuration.
fn work_settings(args: &RunArgs, config: &Config) -> Result<team_service::Settings, CliError> {
    let folder = args.folder.clone().unwrap_or_else(|| brain::paths::state_folder().join("server"));
    let extractor = extractor::extractor(config, None)?;
    let (budget, delivery) = (extractor::budget(config), settings::delivery(config));
    let embed = settings::background_embedding(config);
    let confidence_min = config.number("extract.confidence_min") as f64 / 100.0;
    let of_setup = embed.clone();
    let setup = move |brain: Brain, places: StatePaths| {
        let default_branch = brain.manifest().ok().and_then(|manifest| manifest.default_branch);
        let mut setup = actors::Setup::shared(brain, places, Arc::clone(&extractor));
        setup.embed = of_setup.clone();
        setup.budget = budget;
        setup.delivery = delivery.clone();
        setup.confidence_min = confidence_min;
        setup.default_branch = default_branch;
        setup
    };
    Ok(team_service::Settings {
        folder,
        setup: Arc::new(setup),
        embed,
        github_api: config.string("github.api"),
        lease: Duration::from_secs(args.lease),
        sync_every: Duration::from_secs(args.sync),
        brains_at_once: args.brains as usize,
        poll_every: Duration::from_millis(250),
        limit: config.number("retrieve.limit") as usize,
        budget_tokens: config.number("retrieve.budget_tokens") as usize,
    })
}

/// Serves until a signal; then requests and captures under way are finished, and none is begun.
async fn serve(
    signal: impl Future<Output = &'static str>,
    bound: server::Bound,
    team_server: TeamServer,
) -> Result<(), CliError> {
    let (stop, stopped) = watch::channel(false);
    output::note(&format!("listening on {}", bound.address()));
    let parts = team_server.parts();
    let working = tokio::spawn(team_server.work(stopped));
    let end = async {
        let signal = signal.await;
        tracing::info!(signal, "ending");
        let _ = stop.send(true);
    };
    bound.serve(parts, end).await;
    let _ = working.await;
    Ok(())
}
