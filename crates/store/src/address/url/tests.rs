//! Addresses that are accepted, and addresses that are rejected.

use crate::address::url::*;

#[test]
fn a_bare_path_and_every_scheme_are_understood() {
    for (text, engine) in [
        ("tasks.db", Engine::Sqlite),
        ("/var/lib/tasks.db", Engine::Sqlite),
        ("sqlite:///var/lib/tasks.db", Engine::Sqlite),
        ("postgres://u@h/d", Engine::Postgres),
        ("postgresql://u@h/d", Engine::Postgres),
        ("mysql://u@h/d", Engine::Mysql),
        ("mariadb://u@h/d", Engine::Mysql),
    ] {
        assert_eq!(DatabaseUrl::parse(text).unwrap().engine(), engine, "{text}");
    }
    let url = DatabaseUrl::parse("sqlite:///var/lib/tasks.db").unwrap();
    assert_eq!(url.path(), Some(PathBuf::from("/var/lib/tasks.db")));
}

#[test]
fn a_file_has_one_identity_however_its_path_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().canonicalize().unwrap();
    std::fs::create_dir(here.join("a")).unwrap();
    std::os::unix::fs::symlink(here.join("a"), here.join("link")).unwrap();
    let identity = |path: PathBuf| DatabaseUrl::sqlite(&path).identity().to_owned();
    for rest in ["q.db", "new/q.db"] {
        let own = format!("sqlite://{}/a/{rest}", here.display());
        let written = [here.join("a").join(rest), here.join("link").join(rest), here.join("a/../link/.").join(rest)];
        assert_eq!(written.map(identity), [own.as_str(); 3]);
    }
    let relative = DatabaseUrl::parse("tasks.db").unwrap();
    assert_eq!(relative.identity(), identity(std::env::current_dir().unwrap().join("tasks.db")));
    assert_eq!(relative.to_string(), "sqlite://tasks.db");
    assert_eq!(DatabaseUrl::parse("postgres://u:p@h/d").unwrap().identity(), "postgres://u:***@h/d");
}

#[test]
fn a_typo_does_not_become_a_file() {
    for text in [
        "postgress://u@h/d",
        "",
        "sqlite:x",
        "postgres:/u:p@h/d",
        "host=h dbname=d",
        "http://x",
        "sqlite://",
        ":memory:",
        "mysql://u@h",
        "mysql://u@h/",
    ] {
        assert!(DatabaseUrl::parse(text).is_err(), "{text}");
    }
}

#[test]
fn libpq_gets_timeouts_and_skips_a_standby_when_there_are_other_hosts() {
    const REST: &str = "keepalives_idle=30&keepalives_interval=10&keepalives_count=3&tcp_user_timeout=60000";
    for (text, added) in [
        ("postgres://h/d", "?connect_timeout=10&target_session_attrs=any&"),
        ("postgres://h/d?sslmode=disable", "&connect_timeout=10&target_session_attrs=any&"),
        ("postgres://h/d?connect_timeout=2", "&target_session_attrs=any&"),
        ("postgres://h:1,i:2/d", "?connect_timeout=3&target_session_attrs=read-write&"),
        ("postgres:///d?host=h,i", "&connect_timeout=10&target_session_attrs=read-write&"),
        ("postgres://h/d?target_session_attrs=read-write", "&connect_timeout=10&"),
    ] {
        let url = DatabaseUrl::parse(text).unwrap();
        assert_eq!((url.address(), url.to_string().as_str()), (format!("{text}{added}{REST}").as_str(), text));
    }
}

#[test]
fn each_of_several_hosts_has_an_address_of_its_own() {
    let url = DatabaseUrl::parse("mariadb://u:p%2C@h1:3306,[::1]:3307,h3/d?ssl_mode=required").unwrap();
    let hosts: Vec<(&str, &str)> = url.hosts().iter().map(|host| (&*host.name, &*host.address)).collect();
    assert_eq!(
        hosts,
        [
            ("h1:3306", "mysql://u:p%2C@h1:3306/d?ssl_mode=required"),
            ("[::1]:3307", "mysql://u:p%2C@[::1]:3307/d?ssl_mode=required"),
            ("h3", "mysql://u:p%2C@h3/d?ssl_mode=required"),
        ]
    );
    assert_eq!(url.to_string(), "mysql://u:***@h1:3306,[::1]:3307,h3/d?ssl_mode=required");
    assert_eq!(url.connect_timeout(), Duration::from_secs(3));
    let comma_and_at = DatabaseUrl::parse("mysql://u:p,q@r@h1,h2/d").unwrap();
    assert_eq!(comma_and_at.to_string(), "mysql://u:***@h1,h2/d");
    assert_eq!(comma_and_at.without_secrets("p,q@r and p,q%40r"), "*** and ***");
}

#[test]
fn a_list_of_hosts_that_cannot_be_read_is_refused_with_its_place() {
    for (text, place) in [
        ("postgres://u@h1,,h3/d", "number 2"),
        ("mysql://u@h1,h2:port/d", "number 2"),
        ("postgres://u@h1:99999,h2/d", "number 1"),
        ("mysql://u@h1,h2,/d", "number 3"),
        ("postgres://u@[::1,h2/d", "number 1"),
    ] {
        let error = DatabaseUrl::parse(text).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("host:port,host:port"), "{text}: {error}");
    }
}

#[test]
fn an_address_with_a_bad_parameter_is_refused_with_what_is_allowed() {
    for (text, words) in [
        ("mysql://u@h/d?ssl_mod=required", ["\"ssl_mod\"", "ssl_mode"]),
        ("mysql://u@h/d?sslmode=require", ["\"sslmode\"", "ssl_mode"]),
        ("mysql://u@h1,h2/d?foo=bar", ["\"foo\"", "unix_socket"]),
        ("postgres://u@h/d?ssl_mode=require", ["\"ssl_mode\"", "sslmode"]),
        ("mysql://u@h/d?ssl_mode=requird", ["ssl_mode that is not one of", "required"]),
        ("postgres://u@h/d?sslmode=requird", ["sslmode that is not one of", "require"]),
        ("mysql://u@h/d?connect_timeout=x", ["connect_timeout", "whole number of seconds"]),
        ("postgres://u@h/d?connect_timeout=-1", ["connect_timeout", "whole number of seconds"]),
        ("mysql://u@h/d?target_session_attrs=write", ["target_session_attrs that is not one of", "read-write"]),
    ] {
        let error = DatabaseUrl::parse(text).unwrap_err();
        assert!(matches!(error, StoreError::BadAddress(_)), "{text}: {error}");
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
    }
    for text in [
        "mysql://u@h/d?ssl_mode=REQUIRED&ssl_ca=/ca.pem&connect_timeout=5",
        "mysql://u@h/d?target_session_attrs=read-write&unix_socket=/s",
        "postgres://u@h/d?sslmode=verify-full&sslrootcert=system&options=-csearch_path%3Dx&user=u",
    ] {
        assert!(DatabaseUrl::parse(text).is_ok(), "{text}");
    }
    let error = DatabaseUrl::parse("mysql://u@h/d?S3cr3t&x").unwrap_err().to_string();
    assert!(!error.contains("S3cr3t"), "{error}");
}

#[test]
fn a_password_is_never_shown() {
    for text in [
        "postgres://u:s3cr3t@h/d?sslpassword=s3cr3t",
        "postgres://u@h/d?password=s3cr3t",
        "postgres://u@h/d?pass%77ord=s3cr3t",
        "postgres://u@h/d?scram_client_key=s3cr3t",
        "postgres://u@h/d?scram_server_key=s3cr3t",
        "postgres://u@h1,h2/d?oauth_client_secret=s3cr3t&sslmode=require",
        "mysql://u:s3cr3t@h/d",
        "postgres://u:s3cr3t@h1:5432,h2:5433/d?sslpassword=s3cr3t",
        "mysql://u:s3cr3t@h1,h2:3307/d",
        "mysql://u:s3cr3t@h1,h2:port/d",
        "postgres:/u:s3cr3t@h/d",
        "mysql:u:s3cr3t@h/d",
        "host=h user=u password=s3cr3t",
        "s3cr3t://h/d",
        "mysql://u:s3cr3t@h1,,h2/d",
        "postgres://u:1/s3cr3t@h1,h2/d",
        "postgres://u:1?s3cr3t@h1,h2/d",
        "postgres://u:1#s3cr3t@h1,h2/d",
        "postgres://u:s3cr3t@[bad/d",
        "posgres://u:s3cr3t@h/d",
        "mysql://u:s3cr3t@h",
        "u:s3cr3t@h/d",
        ":s3cr3t@h/d",
        "u:s3cr3t/@h/d",
        "//u:s3cr3t@h/d",
        "u:s3cr3t@tcp(h:3306)/d",
        "sqlite://u:s3cr3t@/x",
    ] {
        let parsed = DatabaseUrl::parse(text);
        let shown = format!("{parsed:?} {}", parsed.as_ref().map_or_else(ToString::to_string, ToString::to_string));
        assert!(!shown.contains("s3cr3t"), "{shown}");
        if let Ok(url) = parsed {
            assert!(url.has_password());
            let message = url.without_secrets(&format!("could not connect to {text} with s3cr3t"));
            assert!(!message.contains("s3cr3t"), "{message}");
        }
    }
}

#[test]
fn a_password_that_the_client_reads_elsewhere_is_refused_and_not_shown() {
    for text in [
        "postgres://h/d#x?password=s3cr3t",
        "postgres://h/d?a#password=s3cr3t",
        "mysql://h/d#x?password=s3cr3t",
        "postgres://u:p@s3cr3t@h/d",
        "postgresql://u:@s3cr3t@h",
    ] {
        let error = DatabaseUrl::parse(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    }
    for text in ["/var/lib/a:b@c.db", "./a:b@c.db", "sqlite:///var/lib/a:b@c.db", "a@b.db", "a:b.db"] {
        assert_eq!(DatabaseUrl::parse(text).unwrap().engine(), Engine::Sqlite, "{text}");
    }
    for text in ["/var/lib/#1@home@tasks.db", "postgres://u:p%40s%23@h/d", "mysql://u:p@s@h/d"] {
        assert!(DatabaseUrl::parse(text).is_ok(), "{text}");
    }
}
