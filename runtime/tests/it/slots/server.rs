//! A Redis of one test's own, that may be filled, paused and killed.

use super::world::World;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Server {
    child: Child,
    folder: tempfile::TempDir,
    pub(super) url: String,
}

impl Server {
    /// Starts a server with further arguments, and waits until it answers.
    pub(super) async fn start(arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Server {
            child: Server::spawn(folder.path(), port, arguments),
            folder,
            url: format!("redis://127.0.0.1:{port}"),
        };
        server.answered().await;
        server
    }

    fn spawn(folder: &std::path::Path, port: u16, arguments: &[&str]) -> Child {
        // Debian's `redis-tools` holds the server as `redis-check-rdb`, which looks at the name that it is called by.
        let called = [
            ("valkey-server", "valkey-server"),
            ("redis-server", "redis-server"),
            ("redis-check-rdb", "redis-server"),
        ];
        let program = |(program, name): (&str, &str)| {
            let mut command = Command::new(program);
            command.arg0(name);
            command
        };
        let found = called
            .into_iter()
            .find(|called| program(*called).arg("--version").stdout(Stdio::null()).status().is_ok())
            .expect("redis-server or valkey-server must be installed (Debian: redis-tools)");
        program(found)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
            .arg(folder)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn answered(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let client = redis::Client::open(self.url.as_str()).unwrap();
        loop {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
            {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the server ended");
            assert!(Instant::now() < deadline, "the server does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// kill −9 and start again on the same port.
    pub(super) async fn restart(&mut self, arguments: &[&str]) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let port = self.url.rsplit_once(':').unwrap().1.parse().unwrap();
        self.child = Server::spawn(self.folder.path(), port, arguments);
        self.answered().await;
    }

    /// `STOP` and `CONT`: a server that hangs and goes on.
    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(super) async fn world(&self) -> World {
        World::at(&self.url).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("the server was started here");
        self.child.wait().expect("it was killed");
    }
}
