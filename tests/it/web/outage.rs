//! A database that goes away while people watch.

use super::WebServer;
use crate::cli::ECHO;
use crate::each_server;
use crate::support::own_server::OwnServer;
use crate::support::{TestDb, wait_until};

each_server! {
    fn the_page_keeps_the_last_figures_while_the_database_is_away(shared) {
        let own = OwnServer::start(shared.engine);
        let db = TestDb::on_server(shared.engine, &own.url, "web_outage");
        db.configure(ECHO);
        db.cli().run(&["queue", "echo", "0"]).ok();
        db.cli().run(&["tick"]).ok();
        db.cli().run(&["queue", "echo", "1"]).ok();
        let server = WebServer::start(&db, &[]);
        // All threads of the server have a connection.
        std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(|| server.get("/tasks")))));
        assert!(server.get("/").body.contains("<b>1</b>scheduled"));
        wait_until("the charts are read", || server.get("/").body.contains("success <b>1</b>"));
        own.kill();
        wait_until("the page says so", || server.get("/").body.contains("These figures are"));
        wait_until("the charts say so too", || server.get("/").body.contains("The charts are"));
        let page = server.get("/");
        assert!(page.status == 200 && page.body.contains("<b>1</b>scheduled"), "{page:?}");
        assert!(page.body.contains("success <b>1</b>"), "{page:?}");
        let answer = server.get("/api/v1/status");
        assert!(answer.status >= 500 && answer.json()["detail"].is_string(), "{answer:?}");
        own.again();
        wait_until("the page is up to date again", || {
            let page = server.get("/");
            page.status == 200 && !page.body.contains("These figures are") && !page.body.contains("The charts are")
        });
        assert_eq!(server.end(), Some(0));
    }
}
