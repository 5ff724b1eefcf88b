//! Certificates of servers: one that is not trusted is refused, and in the strictest mode one of another name, too.

use super::ECHO;
use crate::each_server;
use crate::support::own_server::OwnServer;
use crate::support::{EngineUnderTest, TestDb};
use crate::web::https::certify;

each_server! {
    fn a_server_is_refused_without_a_trusted_certificate_of_its_name(db) {
        certify(db, &["-nodes"]);
        let [trusted, other] = ["cert.pem", "other.pem"].map(|name| db.home().join(name).display().to_string());
        std::fs::rename(&trusted, &other).unwrap();
        certify(db, &["-nodes"]);
        let own = OwnServer::with_certificate(db.engine, db.home());
        let db = TestDb::on_server(db.engine, &own.url, "tls");
        db.configure(ECHO);
        let verbs = |host: &str, mode: &str, issuers: &str| {
            let options = match db.engine {
                EngineUnderTest::Postgres => format!("sslmode=verify-{mode}&sslrootcert={issuers}"),
                _ => format!("ssl_mode=verify_{}&ssl_ca={issuers}", if mode == "full" { "identity" } else { mode }),
            };
            let address = db.url_text().replace("@127.0.0.1:", &format!("@{host}:"));
            db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{address}?{options}")).run(&["queue", "echo"])
        };
        // The client of MySQL takes lower-case localhost for a socket.
        for (host, mode) in [("127.0.0.1", "ca"), ("LOCALHOST", "full")] {
            let _ = verbs(host, mode, &trusted).ok();
        }
        for (host, mode, issuers) in [("127.0.0.1", "ca", &other), ("LOCALHOST", "full", &other), ("127.0.0.1", "full", &trusted)] {
            let ended = verbs(host, mode, issuers);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{host} {mode} {issuers}: {ended:?}");
            assert!(ended.stderr.to_lowercase().contains("certificate"), "{host} {mode} {issuers}: {ended:?}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 2);
    }
}
