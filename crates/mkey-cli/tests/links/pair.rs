//! A server and a client of one program, each in a namespace of its own.

use crate::namespaces::{Namespaces, in_namespace};
use crate::preloaded::mkey_run;
use crate::process::{await_listener, ended, said};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// So long a run may take, on a machine that has other work, too: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How programs are run.
pub struct Pair<'n> {
    both: &'n Namespaces,
    v6: bool,
    options: Vec<String>,
    captures: Option<[PathBuf; 2]>,
}

impl<'n> Pair<'n> {
    /// With devices of these addresses.
    pub fn new(both: &'n Namespaces, v6: bool) -> Self {
        Self { both, v6, options: Vec::new(), captures: None }
    }

    /// The same with more options of `mkey run`.
    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// The same with captures in a folder.
    pub fn captured(mut self, folder: &Path) -> Self {
        self.captures = Some(["a", "b"].map(|side| folder.join(format!("{side}.pcap"))));
        self
    }

    /// Where the captures are.
    pub fn captures(&self) -> &[PathBuf] {
        self.captures.as_ref().map_or(&[], |captures| &captures[..])
    }

    /// Runs server and client to a good end.
    pub fn succeeds(&self, program: &[&str]) {
        let (ends, said) = self.run(program);
        assert_eq!(ends, [Some(0); 2], "{}", self.in_words(program, &said));
    }

    /// The same with programs that end as soon as they have all, over a network that loses packets. If
    /// it is the last acknowledgement that is lost, nobody is there to send it again, and the one that
    /// waits for it is told so, as with any device.
    pub fn succeeds_but_for_last_words(&self, program: &[&str]) {
        let (ends, said) = self.run(program);
        let words = "transport retry counter exceeded";
        let alone = |side: usize| {
            ends[side] == Some(1) && said[side].contains(words) && ends[1 - side] == Some(0)
        };
        let good = ends == [Some(0); 2] || alone(0) || alone(1);
        assert!(good, "{ends:?}: {}", self.in_words(program, &said));
    }

    fn in_words(&self, program: &[&str], said: &[String; 2]) -> String {
        let version = if self.v6 { 6 } else { 4 };
        let [client, server] = said;
        format!("{program:?} (IPv{version}, {:?}): {client}\n{server}", self.options)
    }

    /// How client and server end, and what they say.
    fn run(&self, program: &[&str]) -> ([Option<i32>; 2], [String; 2]) {
        let mut server = self.start(0, program);
        await_listener(&mut server, Some(self.both.name(0)), PATIENCE);
        let address = self.both.address(0, false);
        let mut client = self.start(1, &[program, &[address]].concat());
        let until = Instant::now() + PATIENCE;
        let ends = [ended(&mut client, until), ended(&mut server, until)];
        (ends, [client, server].map(said))
    }

    fn start(&self, side: usize, program: &[&str]) -> Child {
        let mut options = self.options.clone();
        options.extend(["--address".to_owned(), self.both.address(side, self.v6).to_owned()]);
        let mut words: Vec<OsString> = options.into_iter().map(OsString::from).collect();
        if let Some(captures) = &self.captures {
            words.extend(["--capture".into(), captures[side].clone().into_os_string()]);
        }
        words.push("--".into());
        words.extend(program.iter().map(OsString::from));
        in_namespace(self.both.name(side), &mkey_run(&words))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}
