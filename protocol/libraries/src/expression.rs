// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The number of elements of an array: a sum, product or bound of other parameters.

/// An expression over integer parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A number.
    Constant(i64),
    /// The parameter with this index.
    Parameter(usize),
    /// An operation on two expressions.
    Operation(Operator, Box<Expression>, Box<Expression>),
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `max(a, b)`
    Maximum,
    /// `min(a, b)`
    Minimum,
}

impl Expression {
    /// Returns the expression's value, given those of parameters. `None`: a parameter is not an integer, or the value
    /// overflows.
    pub fn value(&self, parameter: &dyn Fn(usize) -> Option<i128>) -> Option<i128> {
        match self {
            Self::Constant(value) => Some(i128::from(*value)),
            Self::Parameter(index) => parameter(*index),
            Self::Operation(operator, left, right) => {
                let (left, right) = (left.value(parameter)?, right.value(parameter)?);
                match operator {
                    Operator::Add => left.checked_add(right),
                    Operator::Subtract => left.checked_sub(right),
                    Operator::Multiply => left.checked_mul(right),
                    Operator::Maximum => Some(left.max(right)),
                    Operator::Minimum => Some(left.min(right)),
                }
            }
        }
    }

    /// Parses an expression; `index` returns the index of the parameter with a name.
    ///
    /// Errors: describes the syntax error in `text`.
    pub fn parse(text: &str, index: &dyn Fn(&str) -> Option<usize>) -> Result<Self, String> {
        let mut reader = Reader { rest: text.trim(), index };
        let expression = reader.sum()?;
        if reader.rest.is_empty() { Ok(expression) } else { Err(format!("`{}` is too much", reader.rest)) }
    }
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
            left = Expression::Operation(operator, left.into(), self.product()?.into());
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.operand()?;
        while self.takes("*") {
            left = Expression::Operation(Operator::Multiply, left.into(), self.operand()?.into());
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
        Ok(Expression::Operation(operator, left.into(), right.into()))
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
        let expression = Expression::parse(text, &index).expect(text);
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
            assert_eq!(Expression::parse(text, &none), Err(error.to_owned()), "{text}");
        }
    }
}
