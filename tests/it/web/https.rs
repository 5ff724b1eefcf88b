//! HTTPS by the server itself.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use super::WebServer;
use crate::cli::{ECHO, write};
use crate::support::{TestDb, wait_until};
use crate::{each_engine, test_on};

/// A name that every machine finds itself by.
const NAME: &str = "localhost";

/// Makes a certificate of `localhost` and its key at `cert.pem` and `key.pem`, with more arguments of `openssl req`.
pub(crate) fn certify(db: &TestDb, more: &[&str]) {
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

fn connect(server: &WebServer) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port(server).parse().unwrap())).unwrap()
}

/// Returns the serial number of the certificate that a new connection gets; `None` if there is none.
fn serial(server: &WebServer) -> Option<String> {
    let line = format!(
        "openssl s_client -connect 127.0.0.1:{} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        port(server)
    );
    let said = Command::new("sh").args(["-c", &line]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().strip_prefix("serial=").map(str::to_owned)
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
        let mut plain = connect(&server);
        plain.write_all(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }

    fn a_renewed_certificate_is_used_without_a_restart(db) {
        db.configure(ECHO);
        let server = start(db);
        let first = serial(&server).unwrap();
        let other_than = |used: &[&String]| serial(&server).filter(|serial| !used.contains(&serial));
        certify(db, &["-nodes"]);
        wait_until("the new certificate is used", || other_than(&[&first]).is_some());
        let second = serial(&server).unwrap();
        // Neither a half-written file nor an empty pipe stops the server.
        let (cert, key) = (path(db, "cert.pem"), path(db, "key.pem"));
        write(db, "cert.pem", "half a certificate");
        let waits_with = |words: &str| {
            wait_until("the problem is printed", || {
                assert_eq!(serial(&server).as_ref(), Some(&second));
                server.messages().contains(&format!("the changed certificate is not used, the old one remains: {words}"))
            });
        };
        waits_with(&format!("{cert} has no certificate in PEM"));
        std::fs::remove_file(&key).unwrap();
        assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
        waits_with(&format!("{key} is not a regular file"));
        std::fs::remove_file(&key).unwrap();
        certify(db, &["-nodes"]);
        wait_until("the next one is used", || other_than(&[&first, &second]).is_some());
        wait_until("that is printed", || server.messages().contains("the changed certificate is used now"));
    }

    fn a_certificate_that_cannot_be_used_is_refused_at_the_start(db) {
        db.configure(ECHO);
        certify(db, &["-nodes"]);
        let (cert, key) = (path(db, "cert.pem"), path(db, "key.pem"));
        std::fs::copy(&key, path(db, "other.pem")).unwrap();
        let start = |more: &[&str], status| db.cli().run(&[&["web", "--listen", "127.0.0.1:0"], more].concat()).fails(status);
        // Not 2, the status of wrong options: systemd starts the server again until the files are right.
        let with = |cert: &str, key: &str| start(&["--host", NAME, "--tls-cert", cert, "--tls-key", key], 78);
        assert!(with("/nowhere/cert.pem", &key).contains("cannot read /nowhere/cert.pem"));
        assert!(with("/dev/zero", &key).contains("/dev/zero is not a regular file"));
        std::fs::set_permissions(&key, Permissions::from_mode(0o666)).unwrap();
        assert!(with(&cert, &key).contains("key.pem can be written by everybody"));
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        assert!(with(&key, &key).contains("key.pem has no certificate in PEM"));
        assert!(with(&cert, &cert).contains("cert.pem has no private key in PEM, or one with a passphrase"));
        assert!(start(&["--tls-cert", &cert, "--host", NAME], 2).contains("--tls-key"));
        assert!(start(&["--tls-cert", &cert, "--tls-key", &key], 2).contains("--host"));
        let socket = format!("unix:{}", path(db, "web.sock"));
        let at_socket = ["web", "--listen", &socket, "--host", NAME, "--tls-cert", &cert, "--tls-key", &key];
        assert!(db.cli().run(&at_socket).fails(2).contains("--behind-proxy"));
        certify(db, &["-passout", "pass:secret"]);
        assert!(with(&cert, &key).contains("or one with a passphrase"));
        assert!(with(&cert, &path(db, "other.pem")).contains("other.pem does not belong to the certificate in"));
    }

    fn clients_that_send_no_handshake_do_not_block_others(db) {
        db.configure(ECHO);
        let server = start(db);
        let silent: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
        assert_eq!(python(db, &server, "print(opener.open(url + '/login').status)"), "200\n");
        assert_eq!(server.end(), Some(0));
        drop(silent);
    }
}

// The time limit is the same on every engine, and the test waits for it.
test_on! { [sqlite Sqlite] a_handshake_that_does_not_end_loses_its_connection db {
    db.configure(ECHO);
    let server = start(db);
    let mut slow = connect(&server);
    slow.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    slow.write_all(b"\x16\x03\x01\x02\x00").unwrap();
    assert_eq!(slow.read(&mut [0; 100]).unwrap(), 0);
} }
