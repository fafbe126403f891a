//! A type as Rust source, said in C.
//!
//! Everything is wrapped in `__typeof__`, so that pointers, arrays and functions need no
//! declarator syntax.

use std::collections::HashMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use mkey_sys::abi;

/// The C names of the types that are declared by name.
pub struct Names(HashMap<&'static str, String>);

impl Names {
    /// The names in all tables and those of C itself.
    pub fn new() -> Self {
        let mut names = HashMap::new();
        for (rust, c) in [
            ("bool", "_Bool"),
            ("u8", "uint8_t"),
            ("u16", "uint16_t"),
            ("u32", "uint32_t"),
            ("u64", "uint64_t"),
            ("usize", "size_t"),
            ("isize", "ssize_t"),
            ("be16", "__be16"),
            ("be32", "__be32"),
            ("be64", "__be64"),
            ("c_char", "char"),
            ("c_int", "int"),
            ("c_uint", "unsigned int"),
            ("c_void", "void"),
            ("pthread_cond_t", "pthread_cond_t"),
            ("pthread_mutex_t", "pthread_mutex_t"),
            ("timespec", "struct timespec"),
        ] {
            names.insert(rust, c.to_owned());
        }
        for table in abi::tables() {
            let opaque = table.opaque.iter().map(|name| (*name, format!("struct {name}")));
            let records = table.structs.iter().chain(table.unions);
            let records = records.map(|record| (record.name, record.c.to_owned()));
            let enums = table.enums.iter().map(|it| (it.name, format!("enum {}", it.name)));
            for (name, c) in opaque.chain(records).chain(enums) {
                assert_eq!(names.insert(name, c), None, "`{name}` is declared twice");
            }
        }
        Self(names)
    }

    /// The C type.
    pub fn in_c(&self, rust: &str) -> String {
        let mut parser = Parser { names: self, tokens: tokens(rust).into_iter().peekable() };
        let c = parser.any();
        assert_eq!(parser.tokens.next(), None, "trailing tokens in `{rust}`");
        c
    }
}

fn tokens(rust: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in rust.chars() {
        let word = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if word && in_word => last.push(c),
            // `->` is one token.
            Some(last) if c == '>' && last == "-" => last.push(c),
            _ if !c.is_whitespace() => tokens.push(c.into()),
            _ => {}
        }
        in_word = word;
    }
    tokens
}

struct Parser<'a> {
    names: &'a Names,
    tokens: Peekable<IntoIter<String>>,
}

impl Parser<'_> {
    fn any(&mut self) -> String {
        let first = self.next();
        match first.as_str() {
            "*" => {
                let constant = self.next() == "const";
                let target = self.any();
                let constant = if constant { "const " } else { "" };
                format!("__typeof__({constant}{target} *)")
            }
            "[" => {
                let element = self.any();
                self.expect(";");
                let count = self.next();
                self.expect("]");
                format!("__typeof__({element}[{count}])")
            }
            "(" => {
                self.expect(")");
                "void".into()
            }
            "Option" => {
                self.expect("<");
                let function = self.any();
                self.skip(",");
                self.expect(">");
                function
            }
            "unsafe" => self.function(),
            name => match self.names.0.get(name) {
                Some(c) => format!("__typeof__({c})"),
                None => panic!("`{name}` is no type that is declared"),
            },
        }
    }

    /// `extern "C" fn(name: Type, ...) -> Type`, without the `unsafe` before it.
    fn function(&mut self) -> String {
        for token in ["extern", "\"", "C", "\"", "fn", "("] {
            self.expect(token);
        }
        let mut args = Vec::new();
        while !self.skip(")") {
            let name = self.next();
            self.expect(":");
            assert!(!name.is_empty());
            args.push(self.any());
            self.skip(",");
        }
        let result = if self.skip("->") { self.any() } else { "void".into() };
        let args = if args.is_empty() { "void".into() } else { args.join(", ") };
        format!("__typeof__({result} (*)({args}))")
    }

    fn next(&mut self) -> String {
        self.tokens.next().expect("a type that ends too early")
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token);
    }

    fn skip(&mut self, token: &str) -> bool {
        self.tokens.next_if(|next| next == token).is_some()
    }
}
