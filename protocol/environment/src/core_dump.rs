// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The attributes of core dumps, as the CUDA driver API manual ("Coredump Attributes Control API") and the CUDA-GDB manual
//! ("GPU core dump support") describe them.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;

/// `CU_CTX_COREDUMP_ENABLE`, `CU_CTX_USER_COREDUMP_ENABLE`.
const CTX_ENABLE: u32 = 0x20;
const CTX_USER_ENABLE: u32 = 0x40;
/// `CU_COREDUMP_SKIP_ABORT`, `CU_COREDUMP_LIGHTWEIGHT_FLAGS`, and all flags there are.
const SKIP_ABORT: u32 = 1 << 4;
const LIGHTWEIGHT: u32 = 0x2f;
const ALL_FLAGS: u32 = 0x3f;
/// Names of the flags in `CUDA_COREDUMP_GENERATION_FLAGS`, from bit 0 on.
const FLAG_NAMES: [&str; 6] = [
    "skip_nonrelocated_elf_images",
    "skip_global_memory",
    "skip_shared_memory",
    "skip_local_memory",
    "skip_abort",
    "skip_constbank_memory",
];
/// Room for a name, with its NUL, bytes.
const TEXT: usize = 1024;

/// The reason for refusing to get or set an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `CUDA_ERROR_INVALID_VALUE`
    InvalidValue,
    /// `CUDA_ERROR_NOT_PERMITTED`
    NotPermitted,
}

/// `CUcoredumpSettings`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// `CU_COREDUMP_ENABLE_ON_EXCEPTION`.
    EnableOnException = 1,
    /// `CU_COREDUMP_TRIGGER_HOST`.
    TriggerHost = 2,
    /// `CU_COREDUMP_LIGHTWEIGHT`.
    Lightweight = 3,
    /// `CU_COREDUMP_ENABLE_USER_TRIGGER`.
    EnableUserTrigger = 4,
    /// `CU_COREDUMP_FILE`.
    File = 5,
    /// `CU_COREDUMP_PIPE`.
    Pipe = 6,
    /// `CU_COREDUMP_GENERATION_FLAGS`.
    GenerationFlags = 7,
}

impl Attribute {
    const ALL: [Self; 7] = [
        Self::EnableOnException,
        Self::TriggerHost,
        Self::Lightweight,
        Self::EnableUserTrigger,
        Self::File,
        Self::Pipe,
        Self::GenerationFlags,
    ];

    /// The attribute of that number.
    pub fn new(number: i32) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|attribute| *attribute as i32 == number).ok_or(Refusal::InvalidValue)
    }

    /// Length of a value of this attribute, in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::File | Self::Pipe => TEXT,
            Self::GenerationFlags => size_of::<u32>(),
            _ => size_of::<bool>(),
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::EnableOnException => "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
            Self::TriggerHost => "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
            Self::Lightweight => "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
            Self::EnableUserTrigger => "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
            Self::File => "CUDA_COREDUMP_FILE",
            Self::Pipe => "CUDA_COREDUMP_PIPE",
            Self::GenerationFlags => "CUDA_COREDUMP_GENERATION_FLAGS",
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A C `bool`.
    Bool(bool),
    /// `CUCoredumpGenerationFlags`.
    Flags(u32),
    /// A path.
    Text(Vec<u8>),
}

impl Value {
    /// Reads a value that a program passes: `byte` returns the bytes, of which there are `size`.
    pub fn read(attribute: Attribute, size: usize, byte: impl Fn(usize) -> u8) -> Result<Self, Refusal> {
        let fits = |bytes| if size < bytes { Err(Refusal::InvalidValue) } else { Ok(()) };
        match attribute {
            Attribute::File | Attribute::Pipe => {
                // Some callers count the NUL, others do not have one.
                let text: Vec<u8> = (0..size.min(TEXT)).map(byte).take_while(|&byte| byte != 0).collect();
                if text.len() == TEXT { Err(Refusal::InvalidValue) } else { Ok(Self::Text(text)) }
            }
            Attribute::GenerationFlags => {
                fits(size_of::<u32>())?;
                Ok(Self::Flags(u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)])))
            }
            _ => {
                fits(size_of::<bool>())?;
                Ok(Self::Bool(byte(0) != 0))
            }
        }
    }

    /// The value for a program whose buffer has `room` bytes.
    pub fn bytes(self, room: usize) -> Result<Vec<u8>, Refusal> {
        let bytes = match self {
            Self::Bool(value) => vec![value.into()],
            Self::Flags(flags) => flags.to_ne_bytes().to_vec(),
            Self::Text(mut text) => {
                text.push(0);
                text
            }
        };
        if bytes.len() > room { Err(Refusal::InvalidValue) } else { Ok(bytes) }
    }

    /// Parses the value of an environment variable.
    fn of_variable(attribute: Attribute, text: &[u8]) -> Self {
        match attribute {
            Attribute::File | Attribute::Pipe => Self::Text(text[..text.len().min(TEXT - 1)].to_vec()),
            Attribute::GenerationFlags => {
                let text = String::from_utf8_lossy(text);
                let named = |name: &&str| text.split(',').any(|word| word.trim().eq_ignore_ascii_case(name));
                let bits = FLAG_NAMES.iter().enumerate().filter(|(_, name)| named(name));
                Self::Flags(bits.fold(0, |flags, (bit, _)| flags | 1 << bit))
            }
            _ => Self::Bool(
                String::from_utf8_lossy(text).trim().parse::<i64>().is_ok_and(|number| number != 0),
            ),
        }
    }
}

#[derive(Clone, Debug)]
struct Settings {
    on_exception: bool,
    user_trigger: bool,
    flags: u32,
    file: Vec<u8>,
    pipe: Vec<u8>,
}

impl Settings {
    fn get(&self, attribute: Attribute) -> Value {
        match attribute {
            Attribute::EnableOnException => Value::Bool(self.on_exception),
            // The manual calls these two other words for flags.
            Attribute::TriggerHost => Value::Bool(self.flags & SKIP_ABORT == 0),
            Attribute::Lightweight => Value::Bool(self.flags & LIGHTWEIGHT == LIGHTWEIGHT),
            Attribute::EnableUserTrigger => Value::Bool(self.user_trigger),
            Attribute::File => Value::Text(self.file.clone()),
            Attribute::Pipe => Value::Text(self.pipe.clone()),
            Attribute::GenerationFlags => Value::Flags(self.flags),
        }
    }

    fn set_flags(&mut self, flags: u32, on: bool) {
        self.flags = if on { self.flags | flags } else { self.flags & !flags };
    }

    fn set(&mut self, attribute: Attribute, value: Value) -> Result<(), Refusal> {
        match (attribute, value) {
            (Attribute::EnableOnException, Value::Bool(on)) => self.on_exception = on,
            (Attribute::TriggerHost, Value::Bool(on)) => self.set_flags(SKIP_ABORT, !on),
            (Attribute::Lightweight, Value::Bool(on)) => self.set_flags(LIGHTWEIGHT, on),
            (Attribute::EnableUserTrigger, Value::Bool(on)) => self.user_trigger = on,
            (Attribute::File, Value::Text(text)) => self.file = text,
            (Attribute::Pipe, Value::Text(_)) if self.user_trigger => return Err(Refusal::NotPermitted),
            (Attribute::Pipe, Value::Text(text)) => self.pipe = text,
            (Attribute::GenerationFlags, Value::Flags(flags)) if flags & !ALL_FLAGS == 0 => {
                self.flags = flags
            }
            _ => return Err(Refusal::InvalidValue),
        }
        Ok(())
    }
}

/// The attributes of a process and of its contexts.
#[derive(Debug)]
pub struct CoreDumps {
    global: Settings,
    contexts: HashMap<u64, Settings>,
    /// Whose environment variables are set: "any coredump environment variable values set before CUDA initializes will take
    /// permanent precedence".
    fixed: Vec<Attribute>,
}

fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the length that is passed to the call.
    if unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0 {
        return "localhost".to_owned();
    }
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..length]).into_owned()
}

impl CoreDumps {
    /// The initial settings of this process.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).map(OsStringExt::into_vec);
        Self::new(variable, &host_name(), std::process::id())
    }

    /// The initial settings of a process of that host and number; `variable` reads its environment.
    fn new(variable: impl Fn(&str) -> Option<Vec<u8>>, host: &str, process: u32) -> Self {
        let name = |prefix: &str| format!("{prefix}.cuda.{host}.{process}").into_bytes();
        let (file, pipe) = (name("core"), name("corepipe"));
        let mut global = Settings { on_exception: false, user_trigger: false, flags: 0, file, pipe };
        let mut fixed = Vec::new();
        // The pipe's name comes before the switch that fixes it; the flags before their other names.
        let order = [Attribute::Pipe, Attribute::GenerationFlags].into_iter().chain(Attribute::ALL);
        for attribute in order {
            if fixed.contains(&attribute) {
                continue;
            }
            if let Some(text) = variable(attribute.variable())
                && global.set(attribute, Value::of_variable(attribute, &text)).is_ok()
            {
                fixed.push(attribute);
            }
        }
        Self { global, contexts: HashMap::new(), fixed }
    }

    /// A context was made with these `CU_CTX_*` flags: it starts with the process's attributes.
    pub fn created(&mut self, context: u64, flags: u32) {
        let mut settings = self.global.clone();
        let fixed = |attribute| self.fixed.contains(&attribute);
        if flags & (CTX_ENABLE | CTX_USER_ENABLE) != 0 && !fixed(Attribute::EnableOnException) {
            settings.on_exception = true;
        }
        if flags & CTX_USER_ENABLE != 0 && !fixed(Attribute::EnableUserTrigger) {
            settings.user_trigger = true;
        }
        self.contexts.insert(context, settings);
    }

    /// A context has been destroyed.
    pub fn destroyed(&mut self, context: u64) {
        self.contexts.remove(&context);
    }

    /// An attribute of a context, or the process's. Whether a user may trigger a dump is the process's alone, as an H200
    /// has it (the manual lists it for contexts, too).
    pub fn get(&self, context: Option<u64>, attribute: Attribute) -> Result<Value, Refusal> {
        if context.is_some() && attribute == Attribute::EnableUserTrigger {
            return Err(Refusal::InvalidValue);
        }
        let settings = context.and_then(|context| self.contexts.get(&context));
        Ok(settings.unwrap_or(&self.global).get(attribute))
    }

    /// Sets an attribute of a context, or the process's for contexts to come.
    pub fn set(&mut self, context: Option<u64>, attribute: Attribute, value: Value) -> Result<(), Refusal> {
        let of_process = matches!(attribute, Attribute::EnableUserTrigger | Attribute::Pipe);
        if self.fixed.contains(&attribute) || (context.is_some() && of_process) {
            return Err(Refusal::NotPermitted);
        }
        match context {
            None => self.global.set(attribute, value),
            Some(context) => {
                self.contexts.entry(context).or_insert_with(|| self.global.clone()).set(attribute, value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(variables: &'static [(&str, &str)]) -> CoreDumps {
        let variable = |name: &str| {
            variables.iter().find(|(one, _)| *one == name).map(|(_, value)| value.as_bytes().to_vec())
        };
        CoreDumps::new(variable, "host", 7)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn defaults_are_the_documented() {
        let dumps = dumps(&[]);
        let expected = [
            Value::Bool(false),
            Value::Bool(true),
            Value::Bool(false),
            Value::Bool(false),
            text("core.cuda.host.7"),
            text("corepipe.cuda.host.7"),
            Value::Flags(0),
        ];
        for (attribute, value) in Attribute::ALL.into_iter().zip(expected) {
            assert_eq!(dumps.get(None, attribute), Ok(value), "{attribute:?}");
        }
        assert!(Attribute::new(0).is_err() && Attribute::new(8).is_err());
    }

    #[test]
    fn the_environment_takes_precedence() {
        let mut dumps = dumps(&[
            ("CUDA_COREDUMP_PIPE", "pipe"),
            ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1"),
            ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "0"),
            ("CUDA_COREDUMP_GENERATION_FLAGS", "skip_abort, skip_local_memory,else"),
        ]);
        assert_eq!(dumps.get(None, Attribute::Pipe), Ok(text("pipe")));
        assert_eq!(dumps.get(None, Attribute::EnableUserTrigger), Ok(Value::Bool(true)));
        assert_eq!(dumps.get(None, Attribute::GenerationFlags), Ok(Value::Flags(0x18)));
        assert_eq!(dumps.get(None, Attribute::TriggerHost), Ok(Value::Bool(false)));
        dumps.created(1, CTX_ENABLE);
        assert_eq!(dumps.get(Some(1), Attribute::EnableOnException), Ok(Value::Bool(false)));
        assert_eq!(dumps.set(None, Attribute::GenerationFlags, Value::Flags(0)), Err(Refusal::NotPermitted));
        assert_eq!(dumps.set(None, Attribute::File, text("file")), Ok(()));
    }

    #[test]
    fn contexts_start_with_the_attributes_of_the_process() {
        let mut dumps = dumps(&[]);
        dumps.set(None, Attribute::File, text("first")).unwrap();
        dumps.created(1, CTX_USER_ENABLE);
        dumps.set(None, Attribute::File, text("second")).unwrap();
        assert_eq!(dumps.get(Some(1), Attribute::File), Ok(text("first")));
        assert_eq!(dumps.get(Some(1), Attribute::EnableOnException), Ok(Value::Bool(true)));
        assert_eq!(dumps.get(Some(1), Attribute::EnableUserTrigger), Err(Refusal::InvalidValue));
        assert_eq!(dumps.get(None, Attribute::EnableUserTrigger), Ok(Value::Bool(false)));
        assert_eq!(dumps.set(Some(1), Attribute::Pipe, text("pipe")), Err(Refusal::NotPermitted));
        dumps.set(Some(1), Attribute::Lightweight, Value::Bool(true)).unwrap();
        assert_eq!(dumps.get(Some(1), Attribute::GenerationFlags), Ok(Value::Flags(LIGHTWEIGHT)));
        dumps.destroyed(1);
        assert_eq!(dumps.get(Some(1), Attribute::File), Ok(text("second")));
    }

    #[test]
    fn the_pipe_is_fixed_once_it_is_listened_to() {
        let mut dumps = dumps(&[]);
        dumps.set(None, Attribute::Pipe, text("pipe")).unwrap();
        dumps.set(None, Attribute::EnableUserTrigger, Value::Bool(true)).unwrap();
        assert_eq!(dumps.set(None, Attribute::Pipe, text("other")), Err(Refusal::NotPermitted));
    }

    #[test]
    fn sizes_are_checked() {
        let read = |attribute, size| Value::read(attribute, size, |at| b"name\0more"[at.min(8)]);
        assert_eq!(read(Attribute::File, 9), Ok(text("name")));
        assert_eq!(read(Attribute::File, 2), Ok(text("na")), "without its NUL");
        assert_eq!(read(Attribute::GenerationFlags, 3), Err(Refusal::InvalidValue));
        assert_eq!(read(Attribute::Lightweight, 0), Err(Refusal::InvalidValue));
        assert!(Value::read(Attribute::File, 1023, |_| b'a').is_ok());
        assert_eq!(Value::read(Attribute::File, usize::MAX, |_| b'a'), Err(Refusal::InvalidValue));
        assert_eq!(text("name").bytes(4), Err(Refusal::InvalidValue));
        assert_eq!(text("name").bytes(5), Ok(b"name\0".to_vec()));
        let mut dumps = dumps(&[]);
        assert_eq!(dumps.set(None, Attribute::GenerationFlags, Value::Flags(64)), Err(Refusal::InvalidValue));
    }
}
