// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parses the number of elements of an array.

use cuda_library_rows::expression::{Expression, Operator};

use crate::kept;

/// Parses an expression; `index` returns the index of the parameter with a name.
///
/// Errors: describes the syntax error in `text`.
pub fn parse(text: &str, index: &dyn Fn(&str) -> Option<usize>) -> Result<Expression, String> {
    let mut reader = Reader { rest: text.trim(), index };
    let expression = reader.sum()?;
    if reader.rest.is_empty() { Ok(expression) } else { Err(format!("`{}` is too much", reader.rest)) }
}

fn operation(operator: Operator, left: Expression, right: Expression) -> Expression {
    Expression::Operation(operator, kept(left), kept(right))
}

struct Reader<'a> {
    rest: &'a str,
    index: &'a dyn Fn(&str) -> Option<usize>,
}

impl Reader<'_> {
    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let operator = match self.rest.chars().next() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.skip(1);
            left = operation(operator, left, self.product()?);
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.operand()?;
        while self.takes("*") {
            left = operation(Operator::Multiply, left, self.operand()?);
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expression, String> {
        if self.takes("(") {
            let inner = self.sum()?;
            return if self.takes(")") { Ok(inner) } else { Err("a `)` is missing".into()) };
        }
        let bytes = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = &self.rest[..bytes];
        self.skip(bytes);
        let operator = match word {
            "max" if self.rest.starts_with('(') => Operator::Maximum,
            "min" if self.rest.starts_with('(') => Operator::Minimum,
            "" => return Err("an operand is missing".into()),
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                return word.parse().map(Expression::Constant).map_err(|_| format!("`{word}` is no number"));
            }
            _ => {
                let index = (self.index)(word).ok_or_else(|| format!("there is no parameter `{word}`"))?;
                return Ok(Expression::Parameter(index));
            }
        };
        self.skip(1);
        let left = self.sum()?;
        if !self.takes(",") {
            return Err(format!("`{word}` needs two operands"));
        }
        let right = self.sum()?;
        if !self.takes(")") {
            return Err("a `)` is missing".into());
        }
        Ok(operation(operator, left, right))
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token);
        if found {
            self.skip(token.len());
        }
        found
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<i128> {
        let index = |name: &str| ["n", "ld"].iter().position(|known| *known == name);
        let expression = parse(text, &index).expect(text);
        expression.value(&|index| Some([3, -7][index]))
    }

    #[test]
    fn expressions_are_evaluated() {
        assert_eq!(value("n"), Some(3));
        assert_eq!(value("2*n+1"), Some(7));
        assert_eq!(value("2*(n+1)"), Some(8));
        assert_eq!(value("max(1, ld) * min(n, 2)"), Some(2));
        assert_eq!(value("n - ld - 1"), Some(9));
        assert_eq!(value("9223372036854775807*9223372036854775807*9223372036854775807*n"), None);
    }

    #[test]
    fn mistakes_are_named() {
        let none = |_: &str| None;
        for (text, error) in [
            ("n", "there is no parameter `n`"),
            ("(1", "a `)` is missing"),
            ("1 2", "`2` is too much"),
            ("max(1)", "`max` needs two operands"),
            ("3+", "an operand is missing"),
        ] {
            assert_eq!(parse(text, &none), Err(error.to_owned()), "{text}");
        }
    }
}
