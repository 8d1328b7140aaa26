"""Small Python functions, each asked for in several ways."""

import random
from dataclasses import dataclass

from .phrasing import Turn, exchange


@dataclass(frozen=True, slots=True)
class Function:
    """What a function does, in the words of a question, and its code."""

    asked: str
    code: str
    told: str


FUNCTIONS = (
    Function(
        "{adds two numbers|returns the sum of two numbers|sums two numbers}",
        "def add(a, b):\n    return a + b",
        "It returns the sum of `a` and `b`.",
    ),
    Function(
        "{subtracts two numbers|returns the difference of two numbers}",
        "def subtract(a, b):\n    return a - b",
        "It returns `a` minus `b`.",
    ),
    Function(
        "{multiplies two numbers|returns the product of two numbers}",
        "def multiply(a, b):\n    return a * b",
        "It returns `a` times `b`.",
    ),
    Function(
        "{squares a number|returns the square of a number|computes a square}",
        "def square(n):\n    return n * n",
        "It returns `n` times `n`.",
    ),
    Function(
        "{checks whether a number is even|tests if a number is even|tells if a number is even}",
        "def is_even(n):\n    return n % 2 == 0",
        "It returns `True` when `n` can be divided by 2.",
    ),
    Function(
        "{checks whether a number is odd|tests if a number is odd}",
        "def is_odd(n):\n    return n % 2 == 1",
        "It returns `True` when `n` cannot be divided by 2.",
    ),
    Function(
        "{computes the factorial|computes the factorial of a number|returns a factorial|computes n!}",
        "def factorial(n):\n    result = 1\n    for i in range(2, n + 1):\n        result *= i\n"
        "    return result",
        "It multiplies all numbers from 1 to `n`.",
    ),
    Function(
        "{computes Fibonacci numbers|returns the n-th Fibonacci number|computes the Fibonacci sequence}",
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a",
        "It starts with 0 and 1 and adds the last two numbers `n` times.",
    ),
    Function(
        "{reverses a string|reverses a word|turns a string around|returns a string backwards}",
        "def reverse(text):\n    return text[::-1]",
        "It returns the text read from the end.",
    ),
    Function(
        "{checks for a palindrome|tests whether a word is a palindrome|checks if a string is a palindrome}",
        "def is_palindrome(text):\n    return text == text[::-1]",
        "It returns `True` when the text reads the same from both ends.",
    ),
    Function(
        "{counts words|counts the words in a text|counts the words of a string}",
        "def count_words(text):\n    return len(text.split())",
        "It splits the text at spaces and counts the parts.",
    ),
    Function(
        "{counts vowels|counts the vowels in a text|returns the number of vowels}",
        'def count_vowels(text):\n    return sum(letter in "aeiou" for letter in text.lower())',
        "It counts the letters that are vowels.",
    ),
    Function(
        "{finds the largest number|returns the maximum of a list|finds the maximum}",
        "def largest(numbers):\n    result = numbers[0]\n    for n in numbers:\n        if n > result:\n"
        "            result = n\n    return result",
        "It goes through the list and keeps the largest number it has seen.",
    ),
    Function(
        "{finds the smallest number|returns the minimum of a list|finds the minimum}",
        "def smallest(numbers):\n    result = numbers[0]\n    for n in numbers:\n        if n < result:\n"
        "            result = n\n    return result",
        "It goes through the list and keeps the smallest number it has seen.",
    ),
    Function(
        "{adds up a list|sums a list|sums the numbers of a list|returns the sum of a list}",
        "def total(numbers):\n    result = 0\n    for n in numbers:\n        result += n\n    return result",
        "It adds the numbers one after another.",
    ),
    Function(
        "{computes the mean|computes the average of a list|returns the average|returns the mean of a list}",
        "def mean(numbers):\n    return sum(numbers) / len(numbers)",
        "It divides the sum by the number of values.",
    ),
    Function(
        "{tests for a prime number|checks whether a number is prime|checks if a number is prime}",
        "def is_prime(n):\n    if n < 2:\n        return False\n    for i in range(2, int(n**0.5) + 1):\n"
        "        if n % i == 0:\n            return False\n    return True",
        "It tries every possible divisor up to the square root of `n`.",
    ),
    Function(
        "{greets somebody|says hello|prints a greeting|greets a person by name}",
        'def greet(name):\n    print(f"Hello, {name}!")',
        "It prints a greeting with the name.",
    ),
    Function(
        "{prints hello world|prints Hello, world}",
        'def hello():\n    print("Hello, world!")',
        "It prints one line.",
    ),
    Function(
        "{converts Celsius to Fahrenheit|turns Celsius into Fahrenheit}",
        "def to_fahrenheit(celsius):\n    return celsius * 9 / 5 + 32",
        "It returns the temperature in degrees Fahrenheit.",
    ),
    Function(
        "{sorts a list|sorts numbers|returns a sorted list|sorts a list of numbers}",
        "def sort_numbers(numbers):\n    return sorted(numbers)",
        "It returns a new list in rising order.",
    ),
    Function(
        "{removes duplicates|removes duplicates from a list|returns the unique items of a list}",
        "def unique(items):\n    return list(dict.fromkeys(items))",
        "It keeps the first of equal items and the order of the list.",
    ),
    Function(
        "{computes the area of a circle|returns the area of a circle}",
        "import math\n\n\ndef circle_area(radius):\n    return math.pi * radius**2",
        "It multiplies pi by the square of the radius.",
    ),
    Function(
        "{computes the greatest common divisor|finds the greatest common divisor of two numbers}",
        "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a",
        "It is the algorithm of Euclid.",
    ),
    Function(
        "{counts to ten|prints the numbers from 1 to 10|prints numbers from one to ten}",
        "def count():\n    for n in range(1, 11):\n        print(n)",
        "It prints the numbers from 1 to 10.",
    ),
    Function(
        "{reads a file|returns the text of a file|reads a text file}",
        'def read_file(path):\n    with open(path, encoding="utf-8") as file:\n        return file.read()',
        "It returns the whole text of the file.",
    ),
    Function(
        "{computes the acceptance rate|returns the acceptance rate}",
        "def acceptance_rate(accepted, drafted):\n    return accepted / drafted if drafted else 0.0",
        "It divides the accepted tokens by the drafted tokens.",
    ),
    Function(
        "{plays FizzBuzz|prints FizzBuzz|solves FizzBuzz}",
        "def fizzbuzz(n):\n    for i in range(1, n + 1):\n"
        '        print("Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0) or i)',
        "It prints Fizz for multiples of 3 and Buzz for multiples of 5.",
    ),
)
GERUNDS = (
    "{Write|Give me|Show me|Create|Make|I need} a {Python function|function|small Python function|"
    "Python program|small function} {that|which} WORK{.|, please|}",
    "{Can you write|Could you write|Please write|Write me} a {Python function|function|function in Python} "
    "that WORK{?|.|}",
    "{A|Code for a} Python function {that|which} WORK{.|}",
    "{Python code|Write code|Write Python code|Write Python|A script} that WORK{.|}",
)
ANY = "{Write|Show me|Give me} {some Python code|a Python function|some code|a Python example|a small program}{.|}"


def functions(rng: random.Random) -> list[Turn]:
    """A request for a function, and the function."""
    function = rng.choice(FUNCTIONS)
    pattern = rng.choice(GERUNDS).replace("WORK", function.asked)
    if function is FUNCTIONS[0] and rng.random() < 0.5:
        pattern = ANY
    return exchange(pattern, f"```python\n{function.code}\n```\n\n{function.told}", rng)
