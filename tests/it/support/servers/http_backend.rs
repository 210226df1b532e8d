//! `git http-backend` behind nginx: git's protocol over HTTP, as self-hosted servers offer it. Anybody may push.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use tempfile::TempDir;

use super::process::{Running, find, first_missing, git_program, isolated};
use super::{Hub, Server};

/// How many requests are served at a time.
const CGI_PROCESSES: &str = "8";

/// A running nginx, with fcgiwrap behind it, which runs `git http-backend` for each request.
pub struct HttpBackend {
    addr: SocketAddr,
    _nginx: Running,
    _fcgiwrap: Running,
    _dir: TempDir,
}

impl HttpBackend {
    /// What it needs and is not here.
    pub fn lacks() -> Option<&'static str> {
        let backend = (!git_program("git-http-backend").is_file()).then_some("git http-backend");
        first_missing(&["nginx", "fcgiwrap"]).or(backend)
    }

    /// Serves a hub.
    pub fn start(hub: &Hub) -> HttpBackend {
        hub.git(&["config", "http.receivepack", "true"]);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = dir.path();
        let (nginx, fcgiwrap) = (find("nginx").expect("nginx"), find("fcgiwrap").expect("fcgiwrap"));

        let socket = at.join("cgi");
        let mut command = isolated(fcgiwrap, at);
        command.args(["-f", "-c", CGI_PROCESSES, "-s"]).arg(format!("unix:{}", socket.display()));
        let mut fcgiwrap = Running::start(&mut command, &at.join("fcgiwrap.log"));
        let listens = fcgiwrap.accepts(|| UnixStream::connect(&socket).is_ok());
        assert!(listens, "fcgiwrap ended: {}", fcgiwrap.said());

        let (nginx, addr) = Running::listen(&at.join("nginx.log"), |addr| {
            let file = at.join("nginx.conf");
            std::fs::write(&file, configuration(at, hub, addr)).expect("nginx's configuration");
            let mut command = isolated(&nginx, at);
            command.arg("-p").arg(at).arg("-c").arg(file).args(["-e", "stderr"]);
            command
        });
        HttpBackend { addr, _nginx: nginx, _fcgiwrap: fcgiwrap, _dir: dir }
    }
}

impl Server for HttpBackend {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        format!("http://{addr}/hub.git")
    }
}

/// All that nginx writes is below `dir`. As root it would change to a user that cannot read there.
fn configuration(dir: &Path, hub: &Hub, addr: SocketAddr) -> String {
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let (dir, projects, backend) = (dir.display(), hub.parent().display(), git_program("git-http-backend"));
    let backend = backend.display();
    format!(
        r#"
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {dir}/body;
    fastcgi_temp_path {dir}/fastcgi;
    proxy_temp_path {dir}/proxy;
    scgi_temp_path {dir}/scgi;
    uwsgi_temp_path {dir}/uwsgi;
    server {{
        listen {addr};
        location / {{
            fastcgi_pass unix:{dir}/cgi;
            fastcgi_param SCRIPT_FILENAME {backend};
            fastcgi_param GIT_PROJECT_ROOT {projects};
            fastcgi_param GIT_HTTP_EXPORT_ALL "";
            fastcgi_param PATH_INFO $uri;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param REMOTE_ADDR $remote_addr;
        }}
    }}
}}
"#
    )
}
