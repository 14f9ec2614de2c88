// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The kinds of parameters.

use cuda_library_rows::attributes::Descriptor;
use cuda_library_rows::expression::Expression;
use cuda_library_rows::{
    Asked, Body, Call, Check, Direction, Element, Function, HandleKind, Host, Kind, Measure, Number,
    Parameter, Scratch, ScratchBytes,
};

use super::expression;
use super::facts::note;
use super::{count, number};
use crate::kept;
use crate::rows::split;

/// The names that the kinds of a function's parameters can refer to.
pub(super) struct Kinds<'a> {
    pub(super) handles: &'a [HandleKind],
    pub(super) descriptors: &'a [Descriptor],
    pub(super) functions: &'a [Function],
    pub(super) names: &'a [&'a str],
    /// Names and kinds of the parameters.
    pub(super) pairs: &'a [(&'a str, &'a str)],
}

impl Kinds<'_> {
    /// Parses the kind of a parameter.
    pub(super) fn kind(&self, text: &str) -> Result<Kind, String> {
        if let Some(number) = number(text) {
            return Ok(Kind::Value(number));
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        Ok(match (word, rest) {
            ("ptr", "") => Kind::Pointer,
            ("stream", "") => Kind::Stream,
            ("out", "stream") => Kind::OutStream,
            ("in", "stream") => Kind::InStream,
            ("string", "") => Kind::Text,
            ("scaling", "") => Kind::Scaling,
            ("graph", "") => Kind::Graph,
            ("table", bytes) => Kind::Table(count(bytes)?),
            ("value", _) => Kind::Structure(count(rest.strip_prefix("bytes ").unwrap_or(rest))?),
            ("note", name) => Kind::Noted(note(self.handles, self.pairs, name)?),
            ("asked", _) => Kind::Measured(Measure::Asked(self.asked(rest)?)),
            ("sum", name) => {
                let array = self.parameter(name)?;
                if !self.pairs[array].1.starts_with("in i32[") {
                    return Err(format!("`{name}` is no array of numbers of 32 bits"));
                }
                Kind::Measured(Measure::Sum(array))
            }
            ("malloc", _) => self.allocated(rest)?,
            ("in", _) if rest.contains("] each[") => self.arrays(rest)?,
            _ if word == "scratch" || text.starts_with("scratch[") => Kind::Scratch(self.scratch(text)?),
            _ if text.starts_with("placed(") => {
                let (place, bytes) = text["placed(".len()..].split_once(')').ok_or("the `)` is missing")?;
                Kind::Placed { place: self.parameter(place)?, bytes: count(bytes.trim())? }
            }
            ("described", name) => Kind::Described { kind: self.descriptor(name)?, nullable: false },
            ("described?", name) => Kind::Described { kind: self.descriptor(name)?, nullable: true },
            ("alpha", name) => Kind::DescribedScalar { descriptor: self.parameter(name)?, is_beta: false },
            ("beta", name) => Kind::DescribedScalar { descriptor: self.parameter(name)?, is_beta: true },
            ("new", name) => Kind::New(self.handle(name)?),
            ("end", name) => Kind::End(self.handle(name)?),
            ("scalar", _) => {
                let (direction, element) = match rest.split_once(' ') {
                    Some(("out", element)) => (Direction::Out, element),
                    Some(("inout", element)) => (Direction::InOut, element),
                    _ => (Direction::In, rest),
                };
                let (element, count) = self.counted(element)?;
                Kind::Scalar { direction, element: self.element(element)?, count }
            }
            ("in" | "in?" | "out" | "out?" | "inout" | "inout?", _) => self.host(word, rest)?,
            _ => {
                let name = word.strip_suffix('?');
                Kind::Handle { kind: self.handle(name.unwrap_or(text))?, nullable: name.is_some() }
            }
        })
    }

    /// Parses `scratch[E]`, `scratch P[E]`, `scratch by(FUNCTION)` or `scratch[E] by(FUNCTION)`.
    fn scratch(&self, text: &str) -> Result<Scratch, String> {
        let text = text["scratch".len()..].trim();
        let (text, asked) = match text.split_once("by(") {
            Some((text, name)) => (text.trim(), Some(name.strip_suffix(')').ok_or("the `)` is missing")?)),
            None => (text, None),
        };
        if let Some(name) = asked {
            let found = self.functions.iter().position(|function| function.name == name);
            let number = found.ok_or_else(|| format!("there is no function `{name}` before"))?;
            let is_known =
                matches!(&self.functions[number].body, Body::Forward(call) if self.has_inputs(call));
            let bytes = match self.counted(text)? {
                _ if !is_known => return Err(format!("`{name}` has other parameters")),
                ("", None) => ScratchBytes::Asked(number),
                ("", Some(bytes)) => ScratchBytes::Checked(bytes, number),
                _ => return Err("`by` excludes an owner".into()),
            };
            return Ok(Scratch { owner: None, bytes });
        }
        let (owner, size) = self.counted(text)?;
        let owner = if owner.is_empty() { None } else { Some(self.parameter(owner)?) };
        Ok(Scratch { owner, bytes: ScratchBytes::Counted(size.ok_or("`scratch` needs a size")?) })
    }

    /// Returns whether this row has all parameters of `call` except the places of numbers, one of which is a `size_t`.
    fn has_inputs(&self, call: &Call) -> bool {
        let (answers, others): (Vec<_>, Vec<_>) =
            call.parameters.iter().partition(|parameter| parameter.kind.is_answer());
        let is_size = |parameter: &&Parameter| {
            matches!(&parameter.kind, Kind::Host(Host { element: Element::Number(Number::U64), .. }))
        };
        answers.iter().any(is_size) && others.iter().all(|parameter| self.names.contains(&parameter.name))
    }

    /// Parses `T[E]` or `T[E] of P` after `malloc`.
    fn allocated(&self, text: &str) -> Result<Kind, String> {
        let (text, count) = text.rsplit_once(" of ").map_or((text, None), |(text, name)| (text, Some(name)));
        let (element, most) = self.counted(text)?;
        let element = number(element).ok_or_else(|| format!("`{element}` is no number"))?;
        let count = count.map(|name| self.parameter(name)).transpose()?;
        Ok(Kind::Allocated { element, most: most.ok_or("`malloc` needs a size")?, count })
    }

    /// Parses `T[E] each[B]` after `in`.
    fn arrays(&self, text: &str) -> Result<Kind, String> {
        let (text, arrays) = text.split_once(" each").ok_or("`each` is missing")?;
        let (element, count) = self.counted(text)?;
        let element = number(element).ok_or_else(|| format!("`{element}` is no number"))?;
        let (Some(count), (_, Some(arrays))) = (count, self.counted(arrays)?) else {
            return Err("`each` needs two sizes".into());
        };
        Ok(Kind::Arrays { element, count, arrays })
    }

    /// Parses `FUNCTION(P).RESULT` or `FUNCTION(P).RESULT[N]` after `asked`.
    fn asked(&self, text: &str) -> Result<Asked, String> {
        let (name, rest) = text.split_once('(').ok_or("`asked` needs FUNCTION(P).RESULT")?;
        let (handle, result) = rest.split_once(").").ok_or("`asked` needs FUNCTION(P).RESULT")?;
        let (result, element) = match result.strip_suffix(']').and_then(|result| result.split_once('[')) {
            Some((result, element)) => (result, count(element)? as usize),
            None => (result, 0),
        };
        let found = self.functions.iter().position(|function| function.name == name);
        let function = found.ok_or_else(|| format!("there is no function `{name}` before"))?;
        let handle = self.parameter(handle)?;
        let Body::Forward(call) = &self.functions[function].body else {
            return Err(format!("`{name}` does not cross"));
        };
        let result = call.parameters.iter().position(|parameter| parameter.name == result);
        let result = result.ok_or_else(|| format!("`{name}` has no such result"))?;
        let asked = Asked { handle, function, result, element };
        let kind = self.handle(self.pairs[handle].1)?;
        if asked.is_answered_by(call, kind) { Ok(asked) } else { Err(format!("`{name}` cannot be asked")) }
    }

    fn host(&self, word: &str, text: &str) -> Result<Kind, String> {
        let direction = match word.trim_end_matches('?') {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => Direction::InOut,
        };
        let (text, rule) = match text.split_once("] ") {
            Some((front, rule)) => (&text[..=front.len()], Some(rule)),
            None => (text, None),
        };
        let (room, rule) = match rule.and_then(|rule| rule.strip_prefix("room")) {
            Some(room) => (self.counted(room)?.1, None),
            None => (None, rule),
        };
        let (element, count) = self.counted(text)?;
        let element = self.element(element)?;
        let check = rule.map(|rule| self.check(rule)).transpose()?;
        let number = if check == Some(Check::Metis) { Number::I64 } else { Number::I32 };
        if check.is_some() && (direction == Direction::Out || element != Element::Number(number)) {
            return Err("rules are for numbers of 32 bits that the library reads".into());
        }
        if direction == Direction::InOut && matches!(element, Element::Handle(_)) {
            return Err("handles in host memory are `in` or `out`".into());
        }
        Ok(Kind::Host(kept(Host { direction, nullable: word.ends_with('?'), element, count, room, check })))
    }

    /// Parses a rule for the numbers of an array.
    fn check(&self, text: &str) -> Result<Check, String> {
        let (word, inside) = text.trim().split_once('(').unwrap_or((text.trim(), ""));
        let parts = split(inside.strip_suffix(')').unwrap_or_default());
        let base = parts.get(1).map(|name| self.parameter(name)).transpose()?;
        let value =
            || expression::parse(parts.first().copied().unwrap_or_default(), &|name| self.index(name));
        Ok(match word {
            "rising" => Check::Rising { span: value()?, base },
            "below" => Check::Below { limit: value()?, base },
            "permutation" => Check::Permutation,
            "metis" => Check::Metis,
            _ => return Err(format!("there is no rule `{word}`")),
        })
    }

    /// Splits `T[E]` into the text before the bracket, and `E`.
    fn counted<'t>(&self, text: &'t str) -> Result<(&'t str, Option<Expression>), String> {
        let Some((element, count)) = text.split_once('[') else { return Ok((text.trim(), None)) };
        let count = count.strip_suffix(']').ok_or("the `]` is missing")?;
        Ok((element.trim(), Some(expression::parse(count, &|name| self.index(name))?)))
    }

    fn element(&self, text: &str) -> Result<Element, String> {
        if let Some(number) = number(text) {
            return Ok(Element::Number(number));
        }
        if text == "ptr" {
            return Ok(Element::Pointer);
        }
        if let Some(bytes) = text.strip_prefix("bytes ") {
            return count(bytes).map(Element::Bytes);
        }
        if let Some((bytes, nulls)) = text.strip_prefix("sized ").and_then(|rest| rest.split_once(" null(")) {
            let (first, second) = nulls
                .strip_suffix(')')
                .and_then(|pair| pair.split_once(','))
                .ok_or("`null` needs two places")?;
            return Ok(Element::Sized { bytes: count(bytes)?, nulls: [count(first)?, count(second)?] });
        }
        let inside = |word: &str| text.strip_prefix(word)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(name) = inside("type") {
            return Ok(Element::ByDataType(self.parameter(name)?));
        }
        if let Some((name, kind)) = inside("attribute").and_then(|names| names.split_once(',')) {
            return Ok(Element::ByAttribute { name: self.parameter(name)?, kind: self.parameter(kind)? });
        }
        if let Some((compute, data)) = inside("compute").and_then(|names| names.split_once(',')) {
            return Ok(Element::ByCompute { compute: self.parameter(compute)?, data: self.parameter(data)? });
        }
        self.handle(text).map(Element::Handle)
    }

    fn handle(&self, name: &str) -> Result<usize, String> {
        self.handles
            .iter()
            .position(|known| known.name == name)
            .ok_or_else(|| format!("there is no kind `{name}`"))
    }

    fn descriptor(&self, name: &str) -> Result<usize, String> {
        let found = self.descriptors.iter().position(|known| known.name == name);
        found.ok_or_else(|| format!("there is no descriptor `{name}`"))
    }

    fn parameter(&self, name: &str) -> Result<usize, String> {
        self.index(name.trim()).ok_or_else(|| format!("there is no parameter `{name}`"))
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }
}
