//! Who is let in, and what errors say.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD;
use bellows_queue::text_sha256;
use bellows_testkit::eventually;
use bellows_testkit::programs::{has_program, run};
use bellows_testkit::scratch::write_secret;
use nkeys::KeyPair;

use crate::support::{NatsServer, Trial, program};

/// The error of a program that fails.
fn error(words: &[&str]) -> String {
    let output = program(words).output().unwrap();
    assert!(!output.status.success(), "{words:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn contains(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert!(!error.contains(":secret"), "{error}");
}

#[test]
fn without_a_server_an_error_says_so() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("nats://me:secret@127.0.0.1:{port}");
    contains(&error(&["status", "q", &url]), &["cannot connect", &port.to_string(), "check that it runs"]);
    contains(&error(&["status", "q", "nats://no-such-host.invalid"]), &["cannot connect", "no-such-host.invalid"]);
    contains(&error(&["status", "q", "http://me:secret@lab"]), &["no address of a server", "nats://HOST"]);
    contains(&error(&["status", "q", &url, "--credentials", "/no/file"]), &["/no/file", "check the path"]);
    contains(&error(&["status", "q", &url, "--ca", "/no/file"]), &["/no/file", "check the path"]);
}

#[test]
fn without_jetstream_an_error_says_so() {
    let Some(server) = NatsServer::with("without_jetstream_an_error_says_so", |_| String::new()) else { return };
    let trial = Trial::new(&server, "none", 1, "echo score=1");
    let mut coordinator = trial.coordinator(&[]);
    assert!(!coordinator.wait());
    contains(&trial.logs(), &["no JetStream", "--jetstream"]);
    contains(&error(&["status", "none", &trial.url]), &["no JetStream"]);
}

#[test]
fn credentials_are_those_of_a_user() {
    // The key pair of NATS' documentation.
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let Some(server) = NatsServer::with("credentials_are_those_of_a_user", |folder| {
        format!(
            "jetstream {{ store_dir: '{}' }}\nauthorization {{ users: [ {{ user: me, password: 'se/cr@t' }}, \
             {{ nkey: {public} }}, {{ user: low, password: x, permissions: {{ publish: [none] }} }} ] }}",
            folder.join("js").display()
        )
    }) else {
        return;
    };
    let with = |user: &str| server.url().replace("//", &format!("//{user}@"));
    let found = |words: &[&str]| contains(&error(words), &["has no queue `q`"]);
    for url in [server.url(), with("me:secret"), with("me"), with("you:se%2Fcr%40t")] {
        contains(&error(&["status", "q", &url]), &["refuses the credentials", "--credentials FILE"]);
    }
    found(&["status", "q", &with("me:se%2Fcr%40t")]);
    // One who is let in but may not do anything.
    contains(
        &error(&["status", "q", &with("low:x")]),
        &["cannot read the queue", "ermission", "let this user publish"],
    );
    let write = |text: &str| {
        let path = server.folder.path().join("seed");
        write_secret(&path, text);
        path.to_str().unwrap().to_owned()
    };
    found(&["status", "q", &server.url(), "--credentials", &write(&format!("{seed}\n"))]);
    // Another user's.
    let other = "SUAKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY";
    contains(&error(&["status", "q", &server.url(), "--credentials", &write(other)]), &["refuses the credentials"]);
    let open = write(seed);
    std::fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    contains(&error(&["status", "q", &server.url(), "--credentials", &open]), &["mode 0644", "chmod 600"]);
    for text in ["", "hello", "-----BEGIN NATS USER JWT-----\nx.y.z\n------END NATS USER JWT------\n"] {
        contains(&error(&["status", "q", &server.url(), "--credentials", &write(text)]), &["no credentials", "nsc"]);
    }
}

/// A token of a server with operators, as `nsc` makes it: what it is about, signed by a key.
fn token(signer: &KeyPair, subject: &KeyPair, about: serde_json::Value) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let header = serde_json::json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = serde_json::json!({
        "jti": "test", "iat": 1_700_000_000, "iss": signer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": about,
    });
    let text = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
    format!("{text}.{}", encode(&signer.sign(text.as_bytes()).unwrap()))
}

#[test]
fn files_of_credentials_are_those_of_nsc() {
    let [operator, account, user] = [KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_user()];
    let of_operator = token(&operator, &operator, serde_json::json!({ "type": "operator", "version": 2 }));
    let of_account = serde_json::json!({
        "type": "account", "version": 2,
        "limits": {
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        },
    });
    let of_account = token(&operator, &account, of_account);
    let Some(server) = NatsServer::with("files_of_credentials_are_those_of_nsc", |_| {
        format!(
            "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}",
            account.public_key(),
        )
    }) else {
        return;
    };
    let about = serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let of_user = token(&account, &user, about);
    let with_seed = |seed: &str| {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let path = server.folder.path().join("user.creds");
        write_secret(&path, text);
        error(&["status", "q", &server.url(), "--credentials", path.to_str().unwrap()])
    };
    // It is let in. With operators JetStream would need a system account.
    contains(&with_seed(&user.seed().unwrap()), &["has no JetStream for this user"]);
    contains(&with_seed(&KeyPair::new_user().seed().unwrap()), &["refuses the credentials"]);
    contains(&error(&["status", "q", &server.url()]), &["refuses the credentials"]);
}

/// Certificates of a server and of a client by the authority `ca`, and of a client by `other`; the configuration of a
/// server with TLS.
fn tls(folder: &Path, more: &str) -> String {
    let openssl = |words: &str| run(Command::new("openssl").args(words.split(' ')).current_dir(folder)).unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for authority in ["ca", "other"] {
        openssl(&format!("req -x509 {new} -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"));
    }
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").unwrap();
    std::fs::write(folder.join("me"), "subjectAltName=DNS:me").unwrap();
    for (name, authority, names) in [("server", "ca", "names"), ("client", "ca", "me"), ("stranger", "other", "me")] {
        openssl(&format!("req {new} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 -extfile \
             {names} -out {name}.pem"
        ));
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let (js, certificate, key, ca) = (path("js"), path("server.pem"), path("server.key"), path("ca.pem"));
    let more = more.replace("{ca}", &ca);
    format!("jetstream {{ store_dir: '{js}' }}\ntls {{ cert_file: '{certificate}', key_file: '{key}'{more} }}")
}

#[test]
fn clients_show_their_own_certificate() {
    let test = "clients_show_their_own_certificate";
    if !has_program(test, "openssl") {
        return;
    }
    let Some(server) = NatsServer::with(test, |folder| tls(folder, ", ca_file: '{ca}', verify: true")) else { return };
    let file = |name: &str| server.folder.path().join(name).to_str().unwrap().to_owned();
    let url = server.url().replace("nats://", "tls://");
    let ca = file("ca.pem");
    let status = |more: &[&str]| error(&[&["status", "q", &url, "--ca", &ca], more].concat());
    let no_certificate = status(&[]);
    let shown = |name: &str, key: &str| {
        let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{key}.key")));
        ["--certificate".to_owned(), certificate, "--key".to_owned(), key]
    };
    let client = shown("client", "client");
    let status = |words: &[String; 4]| status(&words.each_ref().map(String::as_str));
    contains(&no_certificate, &["no TLS connection", "certificate", "--certificate FILE"]);
    contains(&status(&shown("stranger", "stranger")), &["no TLS connection", "certificate"]);
    contains(&status(&shown("client", "stranger")), &["no TLS connection"]);
    contains(&status(&shown("client", "no")), &["no.key", "check the path"]);
    contains(&status(&client), &["has no queue `q`"]);
    // A whole campaign.
    let trial = Trial::new(&server, "mutual", 2, "echo score=$PPID");
    let options: Vec<&str> = ["--ca", &ca].into_iter().chain(client.iter().map(String::as_str)).collect();
    let mut coordinator = trial.coordinator(&options);
    eventually("there is a queue", || {
        program(&[&["status", "mutual", &url], options.as_slice()].concat()).output().unwrap().status.success()
    });
    let mut worker = trial.worker(&options);
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(2);
}

#[test]
fn connections_are_encrypted_by_tls() {
    let test = "connections_are_encrypted_by_tls";
    if !has_program(test, "openssl") {
        return;
    }
    let Some(server) = NatsServer::with(test, |folder| tls(folder, "")) else { return };
    let file = |name: &str| server.folder.path().join(name).to_str().unwrap().to_owned();
    let url = server.url().replace("nats://", "tls://");
    for words in [vec!["status", "q", &url], vec!["status", "q", &url, "--ca", &file("other.pem")]] {
        contains(&error(&words), &["no TLS connection", "certificate", "--ca FILE"]);
    }
    contains(&error(&["status", "q", &url, "--ca", &file("server.conf")]), &["TLS"]);
    contains(&error(&["status", "q", &url, "--ca", &file("ca.pem")]), &["has no queue `q`"]);
    // A whole campaign, also with the server's own wish for encryption.
    let trial = Trial::new(&server, "tls", 2, "echo score=$PPID");
    let ca = file("ca.pem");
    let mut coordinator = trial.coordinator(&["--ca", &ca]);
    eventually("there is a queue", || {
        program(&["status", "tls", &url, "--ca", &ca]).output().unwrap().status.success()
    });
    let mut worker = trial.worker(&["--ca", &ca]);
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(2);
}

#[test]
fn a_queue_is_that_of_one_campaign_and_one_file() {
    let Some(server) = NatsServer::new("a_queue_is_that_of_one_campaign_and_one_file") else { return };
    let trial = Trial::new(&server, "one", 2, "echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    eventually("there is a queue", || trial.status().is_some());
    let other = Trial::new(&server, "one", 2, "echo score=1$PPID");
    assert!(!other.coordinator(&[]).wait() && !other.worker(&[]).wait());
    contains(&other.logs(), &["that of another campaign", "--queue-name"]);
    assert_eq!(other.logs().matches("that of another campaign").count(), 2, "{}", other.logs());

    // A worker without the file runs nothing but the file that its user knows.
    let sha256 = text_sha256(&std::fs::read_to_string(&trial.file).unwrap());
    let output = Command::new("sha256sum").arg(&trial.file).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(&sha256));
    let wrong = sha256.replace(|digit: char| digit.is_ascii_digit(), "0");
    contains(&error(&["fetched-worker", "one", &wrong, "/", &trial.url]), &[&sha256, &wrong, "nothing of it was run"]);
    contains(&error(&["fetched-worker", "two", &wrong, "/", &trial.url]), &["has no queue `two`"]);
    contains(&error(&["fetched-worker", "t.o", &wrong, "/", &trial.url]), &["`t.o` is no name"]);
    let output = trial.run(&["fetched-worker", "one", &sha256, "/"]);
    assert!(output.status.success() && coordinator.wait(), "{}", String::from_utf8_lossy(&output.stderr));
    trial.check(2);
}

#[test]
fn a_queue_that_is_removed_ends_its_programs_and_can_be_made_again() {
    let test = "a_queue_that_is_removed_ends_its_programs_and_can_be_made_again";
    let Some(server) = NatsServer::new(test) else { return };
    let trial = Trial::new(&server, "purged", 5, "sleep 0.1; echo score=$PPID");
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    eventually("a block is recorded", || trial.rows().len() >= 3);
    let output = trial.run(&["purge", "purged"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Purged { blocks: "), "{output:?}");
    assert!(!coordinator.wait() && worker.wait(), "{}", trial.logs());
    contains(&trial.logs(), &["was removed from the NATS server", "start the coordinator again"]);
    contains(&error(&["purge", "purged", &trial.url]), &["has no queue"]);
    let made = trial.rows().len();
    assert!(made < 15 && made.is_multiple_of(3), "{made} runs: whole blocks only");
    let mut coordinator = trial.coordinator(&[]);
    let mut worker = trial.worker_later();
    assert!(coordinator.wait() && worker.wait(), "{}", trial.logs());
    trial.check(5);
}
