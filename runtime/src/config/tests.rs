use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    kafka: Kafka,
    topics: Topics,
    mysql: Mysql,
    redis: Redis,
    http: Http,
    telemetry: Telemetry,
    lifecycle: Lifecycle,
    scan: Scan,
    places: Vec<Place>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    name: String,
    limits: PlaceLimits,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceLimits {
    body: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scan {
    batch: u32,
    horizon: HumanDuration,
    allow: Vec<String>,
    eager: bool,
}

impl Config for Sample {
    const PROGRAM: &'static str = "sample";
    const DEFAULTS: &'static str = r#"# The program's own part.

# Lost with the section that is printed with the shared ones.
[http]
listen = "127.0.0.1:9470"

[scan]
# Rows per page.
batch = 500
# How far ahead.
horizon = "60s"
# Topics that may be named; none: any.
allow = []
# Whether.
eager = false

# Places, each with
[[places]]
# its name,
name = "home"
# and its limits.
limits.body = 5
"#;
    const SHARED: &'static [Shared] = &[KAFKA, TOPICS, MYSQL, REDIS, HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.kafka.check("kafka", v);
        self.topics.check("topics", v);
        self.mysql.check("mysql", v);
        self.redis.check("redis", v);
        self.http.check("http", v);
        self.telemetry.check("telemetry", v);
        self.lifecycle.check("lifecycle", v);
        v.rule("scan.batch", &self.scan.batch, self.scan.batch > 0, "must be above zero", "raise it");
    }
    fn http(&self) -> &Http {
        &self.http
    }
    fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
    fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

fn load_with(file: &str, env: &[(&str, &str)]) -> Result<Loaded<Sample>, ConfigReport> {
    let env: Vec<_> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    load_from::<Sample>(Some(file), env.into_iter())
}

/// The lines a user sees for a file.
fn lines(file: &str) -> Vec<String> {
    load_with(file, &[]).expect_err("the file is wrong").lines
}

/// The only line a user sees.
fn line(section: &str, text: &str) -> String {
    let mut lines = lines(&format!("[{section}]\n{text}\n"));
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.remove(0)
}

#[test]
fn the_shared_defaults_are_valid_and_every_key_is_read() {
    assert_defaults::<Sample>();
}

#[test]
fn a_program_sets_its_own_default_for_a_shared_key() {
    assert_eq!(load_with("", &[]).unwrap().config.http.listen, "127.0.0.1:9470");
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let loaded = load_with(
        "[scan]\nbatch = 7\nhorizon = \"5s\"\n[kafka.properties]\nsecurity.protocol = \"SSL\"\n\"socket.timeout.ms\" = 100\n",
        &[
            ("DUESTREAM_SAMPLE__SCAN__BATCH", "9"),
            ("DUESTREAM_SAMPLE__SCAN__ALLOW", "a, b"),
            ("DUESTREAM_SAMPLE__SCAN__EAGER", "true"),
            ("DUESTREAM_SAMPLE__KAFKA__PROPERTIES__SASL_PASSWORD", "s3cret"),
            ("DUESTREAM_OTHER__SCAN__BATCH", "11"),
            ("DUESTREAM_CONFIG", "x"),
        ],
    )
    .unwrap();
    let scan = &loaded.config.scan;
    assert_eq!((scan.batch, scan.horizon.as_ms(), scan.eager), (9, 5_000, true));
    assert_eq!(scan.allow, ["a", "b"]);
    let properties: Vec<_> = loaded.config.kafka.properties.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(properties, ["sasl.password=s3cret", "security.protocol=SSL", "socket.timeout.ms=100"]);
}

#[test]
fn a_list_of_sections_is_set_item_by_item_and_what_an_item_leaves_out_is_as_in_the_defaults() {
    let places = |file: &str, env: &[(&str, &str)]| {
        let loaded = load_with(file, env).unwrap_or_else(|report| panic!("{report}"));
        let again = load_with(&loaded.redacted(), &[]).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(again.redacted(), loaded.redacted(), "what is printed loads again");
        let places = loaded.config.places;
        places.iter().map(|place| format!("{} {}", place.name, place.limits.body)).collect::<Vec<_>>()
    };
    assert_eq!(places("", &[]), ["home 5"]);
    let file = "[[places]]\nname = \"a\"\n[[places]]\nname = \"b\"\nlimits.body = 7\n[[places]]\n";
    assert_eq!(places(file, &[]), ["a 5", "b 7", "home 5"]);
    let env =
        [("DUESTREAM_SAMPLE__PLACES__1__NAME", "z"), ("DUESTREAM_SAMPLE__PLACES__3__LIMITS__BODY", "9")];
    assert_eq!(places(file, &env), ["a 5", "z 7", "home 5", "home 9"]);
    assert_eq!(places("", &env[..1]), ["home 5", "z 5"]);
}

#[test]
fn all_that_is_wrong_with_a_list_of_sections_is_said_at_once() {
    let wrong = load_with(
        "[[places]]\nnam = \"a\"\n[[places]]\nlimits.body = \"b\"\n",
        &[("DUESTREAM_SAMPLE__PLACES__1__NAME__X", "z"), ("DUESTREAM_SAMPLE__PLACES__64__NAME", "z")],
    );
    assert_eq!(
        wrong.unwrap_err().lines,
        [
            "places.0.nam = a: unknown key; did you mean places.0.name?",
            "places.1.limits.body = \"b\": must be a whole number; the default is 5",
            "places.1.name.x = z (DUESTREAM_SAMPLE__PLACES__1__NAME__X): unknown key; did you mean places.0.name?",
            "places.64.name = z (DUESTREAM_SAMPLE__PLACES__64__NAME): unknown key; did you mean places.0.name?",
        ]
    );
    assert_eq!(lines("places = []"), ["places = 0 items: must have 1 to 64 items"]);
    let list = "must be a list of sections ([[…]], or __0__KEY, __1__KEY, …)";
    let alone = load_with("", &[("DUESTREAM_SAMPLE__PLACES", "a")]).unwrap_err().lines;
    assert!(alone[0].contains(list), "{alone:?}");
    assert!(lines("[places]\nname = \"a\"")[0].contains(list));
}

#[test]
fn the_printed_configuration_hides_passwords_and_loads_again() {
    let loaded = load_with(
        "[mysql]\nurl = \"mysql://u:s3cret@db/x\"\n[kafka.properties]\n\"sasl.password\" = \"s3cret\"\n[scan]\nbatch = 7\n",
        &[],
    )
    .unwrap();
    let printed = loaded.redacted();
    assert!(!printed.contains("s3cret") && !loaded.changes().contains("s3cret"), "{printed}");
    assert!(!format!("{:?}", loaded.config.mysql).contains("s3cret"));
    assert!(!printed.contains("Lost with the section"), "{printed}");
    for part in [
        "# The program's own part.\n",
        "url = \"mysql://u:***@db/x\"\n",
        "[kafka.properties]\n\"sasl.password\" = \"***\"\n",
        "# Rows per page.\nbatch = 7\n",
        "listen = \"127.0.0.1:9470\"\n",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    assert_eq!(
        loaded.changes(),
        "kafka.properties.sasl.password = \"***\", mysql.url = \"mysql://u:***@db/x\", scan.batch = 7"
    );
    assert_eq!(load_with(&printed, &[]).unwrap().config.scan.batch, 7);
}

#[test]
fn all_problems_are_reported_at_once() {
    let report = load_with(
        "[kafak]\nbootstrap = \"x:1\"\n[scan]\nbatchh = 3\nhorizon = \"ten\"\nbatch = 0\n[mysql]\npool_max = \"four\"\n",
        &[("DUESTREAM_SAMPLE__REDIS__RETRY_MAX", "1ms"), ("DUESTREAM_SAMPLE__SCAN__EAGER", "maybe")],
    )
    .unwrap_err();
    assert_eq!(
        report.to_string(),
        "the configuration has 7 problems:
  kafak.bootstrap = x:1: unknown key; did you mean kafka.bootstrap?
  mysql.pool_max = \"four\": must be a whole number; the default is 4
  scan.batchh = 3: unknown key; did you mean scan.batch?
  scan.eager = maybe (DUESTREAM_SAMPLE__SCAN__EAGER): must be true or false; the default is false
  scan.horizon = ten: must be a duration; write numbers with units, such as 500ms, 10s, 5m, 1h or 7d
  redis.retry_max = 1ms (DUESTREAM_SAMPLE__REDIS__RETRY_MAX): must be at least redis.retry_min = 100ms; raise it
  scan.batch = 0: must be above zero; raise it"
    );
}

#[test]
fn an_unknown_key_names_what_was_probably_meant() {
    for (section, text, expected) in [
        ("scan", "horizn = \"1s\"", "scan.horizn = 1s: unknown key; did you mean scan.horizon?"),
        ("scan", "pool_max = 3", "scan.pool_max = 3: unknown key; did you mean mysql.pool_max?"),
        ("scan", "zebra = true", "scan.zebra = true: unknown key; [scan] has allow, batch, eager, horizon"),
        (
            "zebra",
            "stripes = 3",
            "zebra.stripes = 3: unknown key; the sections are http, kafka, lifecycle, mysql, places, redis, scan, telemetry, topics",
        ),
    ] {
        assert_eq!(line(section, text), expected);
    }
    let lines = load_with("", &[("DUESTREAM_SAMPLE__SCAN__BACTH", "3")]).unwrap_err().lines;
    assert_eq!(
        lines,
        ["scan.bacth = 3 (DUESTREAM_SAMPLE__SCAN__BACTH): unknown key; did you mean scan.batch?"]
    );
    let lines = load_with("", &[("DUESTREAM_SAMPLE__SCAN", "3")]).unwrap_err().lines;
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn a_file_that_is_no_toml_is_reported_with_the_place() {
    let report = load_with("[scan\nbatch = 1", &[]).unwrap_err();
    assert!(report.lines[0].starts_with("the file is not TOML: TOML parse error at line 1"), "{report}");
}

#[test]
fn a_missing_file_is_reported_with_its_path() {
    let report = load::<Sample>(Some(Path::new("no/such.toml"))).unwrap_err();
    assert_eq!(
        report.lines,
        [
            "--config = no/such.toml: cannot be read: No such file or directory (os error 2); name a file that exists, or none"
        ]
    );
}

/// One case per rule of the shared sections: what is written, and the line that is shown.
#[test]
fn each_broken_rule_shows_key_value_rule_and_remedy() {
    for (section, text, expected) in [
        (
            "kafka",
            "bootstrap = \"localhost\"",
            "kafka.bootstrap = localhost: must be host:port, several separated by commas; for example 127.0.0.1:9092",
        ),
        (
            "kafka",
            "session_timeout = \"1s\"",
            "kafka.session_timeout = 1s: must lie between 2s and 5m; 10s is the default; below 6s only where the brokers lower group.min.session.timeout.ms",
        ),
        ("kafka", "request_timeout = \"0s\"", "kafka.request_timeout = 0s: must be above zero; raise it"),
        (
            "kafka.properties",
            "\"isolation.level\" = \"read_uncommitted\"",
            "kafka.properties.isolation.level = read_uncommitted: is set by Duestream itself, because exactly-once delivery rests on it; leave it out",
        ),
        (
            "topics",
            "prefix = \"due stream\"",
            "topics.prefix = due stream: must be 1 to 200 of the characters a-z A-Z 0-9 . _ - and must not start with __; for example duestream.",
        ),
        (
            "mysql",
            "url = \"mysql://u:s3cret@db\"",
            "mysql.url = mysql://u:***@db: must name server and database; mysql://user:password@host:3306/database",
        ),
        (
            "mysql",
            "url = \"\"",
            "mysql.url = \"\": must name server and database; mysql://user:password@host:3306/database",
        ),
        (
            "mysql",
            "pool_max = 0",
            "mysql.pool_max = 0: must lie between 1 and 256; 2 to 4 per database on two cores is best",
        ),
        (
            "mysql",
            "wait_timeout = \"30s\"",
            "mysql.wait_timeout = 30s: must be whole seconds and at most 10s: it is how long a stopped program may hold locks; 10s is the default",
        ),
        (
            "mysql",
            "lock_wait_timeout = \"1500ms\"",
            "mysql.lock_wait_timeout = 1500ms: must be whole seconds; 3s is the default",
        ),
        (
            "mysql",
            "idle_timeout = \"10s\"",
            "mysql.idle_timeout = 10s: must be at most half of mysql.wait_timeout = 10s: else the server closes connections that the pool still trusts; lower it",
        ),
        (
            "mysql",
            "statement_timeout = \"2s\"",
            "mysql.statement_timeout = 2s: must exceed mysql.lock_wait_timeout = 3s; raise it",
        ),
        (
            "mysql",
            "statement_cache = 10",
            "mysql.statement_cache = 10: must be at least 128: a statement closed for want of room stalls its connection for 40 ms; 512 is the default",
        ),
        ("mysql", "acquire_timeout = \"0s\"", "mysql.acquire_timeout = 0s: must be above zero; raise it"),
        (
            "mysql",
            "retry_max = \"10ms\"",
            "mysql.retry_max = 10ms: must be at least mysql.retry_min = 50ms; raise it",
        ),
        ("mysql", "retries = -1", "mysql.retries = -1: invalid value: integer `-1`, expected u32"),
        (
            "redis",
            "url = \"http://cache\"",
            "redis.url = http://cache: must start with redis://, rediss:// or unix://; for example redis://127.0.0.1:6379",
        ),
        (
            "redis",
            "prefix = \"a:b\"",
            "redis.prefix = a:b: must be of the characters a-z A-Z 0-9 . _ -, because braces and colons have a meaning in keys; ds is the default",
        ),
        ("redis", "connect_timeout = \"0s\"", "redis.connect_timeout = 0s: must be above zero; raise it"),
        (
            "redis",
            "response_timeout = \"100ms\"",
            "redis.response_timeout = 100ms: must lie between 500ms and 60s: a claim of a thousand tasks alone takes 80 ms under load; 5s is the default",
        ),
        ("redis", "retry_min = \"0s\"", "redis.retry_min = 0s: must be above zero; raise it"),
        ("http", "listen = \"9470\"", "http.listen = 9470: must be address:port; for example 127.0.0.1:9470"),
        (
            "telemetry",
            "level = \"a=b=c\"",
            "telemetry.level = a=b=c: must be a level, or target=level separated by commas; for example info,librdkafka=warn",
        ),
        (
            "telemetry",
            "format = \"xml\"",
            "telemetry.format = xml: unknown variant `xml`, expected `text` or `json`",
        ),
        (
            "lifecycle",
            "drain_timeout = \"1h\"",
            "lifecycle.drain_timeout = 1h: must lie between 1s and 2m; 10s is the default",
        ),
    ] {
        assert_eq!(line(section, text), expected);
    }
}

/// docs/CONFIG.md holds the default files as they are; `UPDATE=1 cargo test -p runtime docs_config` rewrites it.
#[test]
fn docs_config_shows_the_default_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut text = include_str!("docs_head.md").to_owned();
    for section in Sample::SHARED {
        text += &format!("```toml\n{}```\n\n", section.defaults);
    }
    for program in ["ingest", "scanner", "dispatcher", "compensator"] {
        let file = root.join(program).join("config.default.toml");
        let own =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text += &format!("## duestream-{program}\n\n```toml\n{}\n```\n\n", own.trim_end());
    }
    let text = text.trim_end().to_owned() + "\n";
    let doc = root.join("docs/CONFIG.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&doc, &text).unwrap();
    }
    let found = std::fs::read_to_string(&doc).unwrap_or_default();
    assert!(
        found == text,
        "docs/CONFIG.md is not up to date: UPDATE=1 cargo test --release -p runtime docs_config"
    );
}
