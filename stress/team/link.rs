//! The network between one server and PostgreSQL, which can be cut: a proxy on this machine.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, Weak};

use anyhow::Result;

/// Forwards connections to PostgreSQL's socket for as long as this process runs.
pub(super) struct Link {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: Mutex<bool>,
    is_restored: Condvar,
    open: Mutex<Vec<Weak<Connection>>>,
}

struct Connection {
    client: TcpStream,
    database: UnixStream,
}

impl Link {
    /// A link to the PostgreSQL whose socket is in this folder, now or later.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, state) = (listener.local_addr()?, Arc::new(State::default()));
        let (shared, socket) = (Arc::clone(&state), folder.join(".s.PGSQL.5432"));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Where PostgreSQL is down, the connection is closed.
                let _ = shared.forward(client, &socket);
            }
        });
        Ok(Self { address, state })
    }

    /// The URL of a database behind it.
    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address)
    }

    /// From here on nothing passes, in neither direction, and nobody is told so.
    pub(super) fn cut(&self) {
        *self.state.is_cut.lock().expect("no panic holds it") = true;
    }

    /// What has waited passes, or is lost together with the connections that were open.
    pub(super) fn restore(&self, keep_connections: bool) {
        if !keep_connections {
            let open = std::mem::take(&mut *self.state.open.lock().expect("no panic holds it"));
            open.iter().filter_map(Weak::upgrade).for_each(|connection| connection.end());
        }
        *self.state.is_cut.lock().expect("no panic holds it") = false;
        self.state.is_restored.notify_all();
    }
}

impl State {
    fn forward(self: &Arc<Self>, client: TcpStream, socket: &PathBuf) -> Result<()> {
        client.set_nodelay(true)?;
        let connection = Arc::new(Connection { client, database: UnixStream::connect(socket)? });
        {
            let mut open = self.open.lock().expect("no panic holds it");
            open.retain(|connection| connection.strong_count() > 0);
            open.push(Arc::downgrade(&connection));
        }
        let (state, same) = (Arc::clone(self), Arc::clone(&connection));
        std::thread::spawn(move || {
            state.copy(&same.client, &same.database);
            same.end();
        });
        let state = Arc::clone(self);
        std::thread::spawn(move || {
            state.copy(&connection.database, &connection.client);
            connection.end();
        });
        Ok(())
    }

    fn copy(&self, mut from: impl Read, mut to: impl Write) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let is_cut = self.is_cut.lock().expect("no panic holds it");
            drop(self.is_restored.wait_while(is_cut, |is_cut| *is_cut));
            if to.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    }
}

impl Connection {
    fn end(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.database.shutdown(Shutdown::Both);
    }
}
