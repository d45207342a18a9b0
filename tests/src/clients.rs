//! Clients in other languages under `tests/clients`: their tools, their dependencies, and running them.
//!
//! Dependencies are pinned in each folder and fetched once, into the cache. A missing tool fails the test where CI is
//! set, and is a skip elsewhere that names what to install.

use crate::world::PATIENCE;
use anyhow::{Context, Result, bail, ensure};
use devstack::{paths, process};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// A language with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The shell, with kcat.
    Kcat,
    /// kafka-clients.
    Java,
    /// confluent-kafka.
    Python,
    /// franz-go.
    Go,
    /// @platformatic/kafka.
    Node,
}

/// A client that can be run.
#[derive(Debug)]
pub struct Client {
    language: Language,
    /// Its folder under `tests/clients`.
    source: PathBuf,
    /// What was fetched for it; the folder does not exist where nothing had to be.
    fetched: PathBuf,
    /// What is made for this one run.
    scratch: tempfile::TempDir,
}

/// A program, the argument that makes it tell its version, the least that serves, and what to install.
struct Tool(&'static str, &'static str, &'static [u32], &'static str);

impl Language {
    fn folder(self) -> &'static str {
        match self {
            Language::Kcat => "kcat",
            Language::Java => "java",
            Language::Python => "python",
            Language::Go => "go",
            Language::Node => "node",
        }
    }

    /// What runs it.
    fn tool(self) -> Tool {
        match self {
            Language::Kcat => Tool("kcat", "-V", &[1, 7], "kcat 1.7 or later"),
            Language::Java => Tool("javac", "--version", &[17], "a JDK of version 17 or later"),
            Language::Python => Tool("python3", "--version", &[3, 9], "Python 3.9 or later"),
            Language::Go => Tool("go", "version", &[1, 26], "Go 1.26 or later"),
            Language::Node => Tool("node", "--version", &[20, 19, 4], "Node.js 20.19.4 or later"),
        }
    }

    /// Files that pin what is fetched.
    fn pins(self) -> &'static [&'static str] {
        match self {
            Language::Kcat => &[],
            Language::Java => &["pom.xml"],
            Language::Python => &["requirements.txt"],
            Language::Go => &["go.mod", "go.sum"],
            Language::Node => &["package.json", "package-lock.json"],
        }
    }

    /// The client, ready to run; `None` where a tool is missing and that may be.
    ///
    /// # Errors
    /// When a tool is missing on CI, or the dependencies cannot be fetched.
    pub async fn client(self) -> Result<Option<Client>> {
        let prepared = tokio::task::spawn_blocking(move || self.prepare()).await?;
        match prepared {
            Ok(client) => Ok(Some(client)),
            Err(error) => match error.downcast::<Missing>() {
                Ok(missing) if std::env::var_os("CI").is_none_or(|value| value.is_empty()) => {
                    tell(&format!("SKIPPED the {} client: {missing}", self.folder()))?;
                    Ok(None)
                }
                Ok(missing) => Err(missing.into()),
                Err(error) => Err(error),
            },
        }
    }

    fn prepare(self) -> Result<Client> {
        static FETCHING: [Mutex<()>; 5] = [const { Mutex::new(()) }; 5];
        let mut hasher = DefaultHasher::new();
        // A virtual environment, for one, belongs to the version of its interpreter.
        self.tool().version()?.hash(&mut hasher);
        let source = paths::work_tree()?.join("tests/clients").join(self.folder());
        for file in self.pins() {
            std::fs::read(source.join(file)).with_context(|| format!("read {file}"))?.hash(&mut hasher);
        }
        let name = format!("client-{}-{:016x}", self.folder(), hasher.finish());
        let fetched = paths::cache()?.join(name);
        if !self.pins().is_empty() {
            let _one_at_a_time = FETCHING[self as usize].lock().expect("no panic while fetching");
            paths::fill_once(&fetched, |aside| {
                tell(&format!("fetching what the {} client needs, once", self.folder()))?;
                self.fetch(&source, aside)
            })
            .with_context(|| format!("fetch what the {} client needs", self.folder()))?;
        }
        let scratch = tempfile::Builder::new().prefix("duestream-client-").tempdir()?;
        let client = Client { language: self, source, fetched, scratch };
        client.build()?;
        Ok(client)
    }

    fn fetch(self, source: &Path, into: &Path) -> Result<()> {
        let file = |name: &str| source.join(name);
        match self {
            Language::Kcat => Ok(()),
            Language::Java => {
                Tool("mvn", "--version", &[3], "Maven").version()?;
                run(Command::new("mvn")
                    .args(["-q", "-B", "-f"])
                    .arg(file("pom.xml"))
                    .arg("dependency:copy-dependencies")
                    .arg(format!("-DoutputDirectory={}", into.display())))
            }
            Language::Python => {
                if run(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_err() {
                    let what = "python3 lacks its module venv; install it (Debian: python3-venv)";
                    return Err(Missing(what.to_owned()).into());
                }
                run(Command::new("python3").args(["-m", "venv"]).arg(into))?;
                run(Command::new(into.join("bin/python"))
                    .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                    .args(["--require-hashes", "--only-binary", ":all:", "-r"])
                    .arg(file("requirements.txt")))
            }
            Language::Go => run(go(source, into).args(["mod", "download"])),
            Language::Node => {
                Tool("npm", "--version", &[9], "npm 9 or later").version()?;
                for name in self.pins() {
                    std::fs::copy(file(name), into.join(name))?;
                }
                run(Command::new("npm")
                    .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
                    .current_dir(into))
            }
        }
    }
}

impl Client {
    /// Compiles or lays out what its language wants compiled or laid out.
    fn build(&self) -> Result<()> {
        let scratch = self.scratch.path();
        match self.language {
            Language::Go => run(go(&self.source, &self.fetched)
                .env("GOPROXY", "off")
                .arg("build")
                .arg("-o")
                .arg(scratch)
                .arg("./...")),
            // Modules are looked up beside the program's file: both must be in one folder, and that not in the work tree.
            Language::Node => {
                for file in std::fs::read_dir(&self.source)? {
                    let file = file?;
                    if file.path().extension().is_some_and(|extension| extension == "mjs") {
                        std::fs::copy(file.path(), scratch.join(file.file_name()))?;
                    }
                }
                let modules = self.fetched.join("node_modules");
                Ok(std::os::unix::fs::symlink(modules, scratch.join("node_modules"))?)
            }
            Language::Kcat | Language::Java | Language::Python => Ok(()),
        }
    }

    /// Runs one of its programs (a file's name without its extension) to its end; answers its standard output.
    ///
    /// # Errors
    /// With all its output, when it fails or takes too long.
    pub async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let file = |extension: &str| self.source.join(format!("{program}.{extension}"));
        let mut command = match self.language {
            Language::Kcat => {
                let mut command = tokio::process::Command::new("sh");
                command.arg(file("sh"));
                command
            }
            Language::Java => {
                let mut command = tokio::process::Command::new("java");
                command
                    .args([
                        "-Xmx256m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-Dfile.encoding=UTF-8",
                    ])
                    .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
                    .arg(format!("{}/*", self.fetched.display()))
                    .arg(file("java"));
                command
            }
            Language::Python => {
                let mut command = tokio::process::Command::new(self.fetched.join("bin/python"));
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(file("py"));
                command
            }
            Language::Go => tokio::process::Command::new(self.scratch.path().join(program)),
            Language::Node => {
                let mut command = tokio::process::Command::new("node");
                command.arg(self.scratch.path().join(format!("{program}.mjs")));
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let what = format!("{}/{program}", self.language.folder());
        // Output goes to files: what a program that hangs has said is worth knowing.
        let (out, err) = (self.scratch.path().join("stdout"), self.scratch.path().join("stderr"));
        command.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(&err)?);
        let mut child = command.spawn().with_context(|| format!("start {what}"))?;
        let status = tokio::time::timeout(PATIENCE, child.wait()).await;
        let said = || format!("{}\n{}", process::log_tail(&out), process::log_tail(&err));
        match status {
            Ok(Ok(status)) if status.success() => Ok(std::fs::read_to_string(&out)?),
            Ok(status) => bail!("{what} ended with {}:\n{}", status?, said()),
            Err(_) => bail!("{what} was still running after {PATIENCE:?}:\n{}", said()),
        }
    }
}

/// A tool that is missing or too old.
#[derive(Debug)]
struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl Tool {
    /// What it says of its version.
    fn version(&self) -> Result<String> {
        let Tool(program, version, at_least, install) = self;
        let Ok(out) = Command::new(program).arg(version).stdin(Stdio::null()).output() else {
            return Err(Missing(format!("found no {program}; install {install}")).into());
        };
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let found = numbers(&text);
        if found.as_slice() < *at_least {
            let said = text.lines().next().unwrap_or_default();
            return Err(Missing(format!("{program} is too old ({said}); install {install}")).into());
        }
        Ok(text)
    }
}

/// The version in a text, its first number with dots, else its first number: `go version go1.26.8 linux` is 1, 26, 8.
fn numbers(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    let numbers: Vec<&str> = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect();
    let version = numbers.iter().find(|word| word.contains('.')).or(numbers.first());
    version.map_or_else(Vec::new, |version| version.split('.').map_while(|part| part.parse().ok()).collect())
}

fn go(source: &Path, fetched: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(source)
        // Never another toolchain than the one that was found.
        .env("GOTOOLCHAIN", "local")
        .env("GOMODCACHE", fetched)
        .env("GOWORK", "off")
        .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false");
    command
}

/// A line for the person who runs the tests. Not `eprintln!`, which the test runner would keep to itself.
fn tell(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "==> {line}")?)
}

fn run(command: &mut Command) -> Result<()> {
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    ensure!(
        out.status.success(),
        "{command:?} ended with {}:\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}
