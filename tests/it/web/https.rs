//! HTTPS by the server itself.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use super::WebServer;
use crate::cli::{ECHO, write};
use crate::each_engine;
use crate::support::{TestDb, wait_until};

/// A name that every machine finds itself by.
const NAME: &str = "localhost";

/// Makes a certificate and its key at `cert.pem` and `key.pem`, with more arguments of `openssl req`.
fn certify(db: &TestDb, more: &[&str]) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            &path(db, "key.pem"),
            "-out",
            &path(db, "cert.pem"),
        ])
        .args(more)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn path(db: &TestDb, name: &str) -> String {
    db.home().join(name).display().to_string()
}

fn start(db: &TestDb) -> WebServer {
    certify(db, &["-nodes"]);
    let files = ["--tls-cert", &path(db, "cert.pem"), "--tls-key", &path(db, "key.pem")];
    WebServer::start(db, &[&["--host", NAME, "--listen", "0.0.0.0:0"], &files[..]].concat())
}

fn port(server: &WebServer) -> &str {
    server.address.rsplit(':').next().unwrap()
}

/// Returns the serial number of the certificate that a new connection gets.
fn serial(server: &WebServer) -> String {
    let line = format!(
        "openssl s_client -connect 127.0.0.1:{} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        port(server)
    );
    let said = Command::new("sh").args(["-c", &line]).output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// Runs lines of Python with `opener`, which trusts the certificate alone and follows no redirection, and `url`.
fn python(db: &TestDb, server: &WebServer, lines: &str) -> String {
    let before = format!(
        "import ssl, urllib.request\nclass Stay(urllib.request.HTTPRedirectHandler):\n    def redirect_request(self, *_): return None\n\
         trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile='{}'))\n\
         opener = urllib.request.build_opener(trusted, Stay, urllib.request.ProxyHandler({{}}))\nurl = 'https://{}'\n",
        path(db, "cert.pem"),
        server.address
    );
    let said = Command::new("python3").args(["-c", &(before + lines)]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

each_engine! {
    fn a_server_with_a_certificate_speaks_https_to_other_hosts(db) {
        db.configure(ECHO);
        let server = start(db);
        assert_eq!(server.address, format!("{NAME}:{}", port(&server)));
        let asks = format!(
            "asked = urllib.request.Request(url + '/api/v1/tasks', b'{{\"class\":\"echo\"}}', \
             {{'Authorization': 'Bearer {}', 'Content-Type': 'application/json'}})\nprint(opener.open(asked).status)\n\
             try: opener.open(url + '/login', b'token={}')\nexcept urllib.error.HTTPError as refused:\n    \
             print(refused.code, refused.headers['Set-Cookie'])",
            server.token("queue"),
            server.token("read")
        );
        let said = python(db, &server, &asks);
        assert!(said.starts_with("201\n303 __Host-taskqueue-login="), "{said}");
        assert!(said.ends_with("; Secure\n"), "{said}");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 1);
        let mut plain = TcpStream::connect(("127.0.0.1", port(&server).parse().unwrap())).unwrap();
        plain.write_all(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }

    fn a_renewed_certificate_is_used_without_a_restart(db) {
        db.configure(ECHO);
        let server = start(db);
        let first = serial(&server);
        assert!(first.starts_with("serial="), "{first}");
        certify(db, &["-nodes"]);
        wait_until("the new certificate is used", || serial(&server) != first);
        let second = serial(&server);
        write(db, "cert.pem", "half a certificate");
        wait_until("the problem is printed", || serial(&server) == second && server.messages().contains("the old one remains"));
        let said = server.messages();
        assert!(said.contains("cert.pem has no certificate in PEM"), "{said}");
        certify(db, &["-nodes"]);
        wait_until("the next one is used", || ![&first, &second].contains(&&serial(&server)));
        assert_eq!(server.messages().matches("the old one remains").count(), 1);
    }

    fn a_certificate_that_cannot_be_used_is_refused_at_the_start(db) {
        db.configure(ECHO);
        certify(db, &["-nodes"]);
        let (cert, key) = (path(db, "cert.pem"), path(db, "key.pem"));
        std::fs::copy(&key, path(db, "other.pem")).unwrap();
        let start = |more: &[&str]| db.cli().run(&[&["web", "--listen", "127.0.0.1:0"], more].concat()).fails(2);
        let with = |cert: &str, key: &str| start(&["--host", NAME, "--tls-cert", cert, "--tls-key", key]);
        assert!(with("/nowhere/cert.pem", &key).contains("cannot read /nowhere/cert.pem"));
        assert!(with(&key, &key).contains("key.pem has no certificate in PEM"));
        assert!(with(&cert, &cert).contains("cert.pem has no private key in PEM, or one with a passphrase"));
        assert!(start(&["--tls-cert", &cert, "--host", NAME]).contains("--tls-key"));
        assert!(start(&["--tls-cert", &cert, "--tls-key", &key]).contains("--host"));
        let socket = format!("unix:{}", path(db, "web.sock"));
        let at_socket = ["web", "--listen", &socket, "--host", NAME, "--tls-cert", &cert, "--tls-key", &key];
        assert!(db.cli().run(&at_socket).fails(2).contains("--behind-proxy"));
        certify(db, &["-passout", "pass:secret"]);
        assert!(with(&cert, &key).contains("or one with a passphrase"));
        assert!(with(&cert, &path(db, "other.pem")).contains("other.pem does not belong to the certificate of"));
    }

    fn clients_that_never_begin_tls_keep_nobody_waiting(db) {
        db.configure(ECHO);
        let server = start(db);
        let silent: Vec<TcpStream> =
            (0..200).map(|_| TcpStream::connect(("127.0.0.1", port(&server).parse().unwrap())).unwrap()).collect();
        assert_eq!(python(db, &server, "print(opener.open(url + '/login').status)"), "200\n");
        drop(silent);
        assert_eq!(server.end(), Some(0));
    }
}
