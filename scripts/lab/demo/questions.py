"""Questions in wordings that training leaves out, with words that a right answer contains."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and what the answer must contain."""

    text: str
    keywords: tuple[str, ...]


def _ask(text: str, *keywords: str) -> Question:
    return Question(text, keywords)


QUESTIONS = (
    _ask("Hello there, nice to meet you!", "demo"),
    _ask("Hey, who exactly are you?", "demo model"),
    _ask("thank you so much for that", "welcome"),
    _ask("Good bye for today!", "Goodbye"),
    _ask("What can you help me with?", "specchat"),
    _ask("What is specchat?", "terminal chat"),
    _ask("What is specchat about?", "terminal chat"),
    _ask("What is speculative decoding?", "draft model", "target"),
    _ask("Can you tell me how speculative decoding works?", "draft model", "target"),
    _ask("what is specualtive decoding", "draft model", "target"),
    _ask("What exactly is a draft model?", "proposes"),
    _ask("And the target, what is that?", "output"),
    _ask("Explain what acceptance rate means.", "accepted", "divided"),
    _ask("How do you define the bonus token?", "fully accepted"),
    _ask("Why do we need rollback?", "rejected tokens"),
    _ask("What are tokens per step?", "number of steps"),
    _ask("Is speculative decoding really lossless?", "distribution"),
    _ask("Does using a draft change the answers?", "target"),
    _ask("Why would speculation be slower on my laptop?", "slower"),
    _ask("What is the speedup exactly?", "plain"),
    _ask("Could you explain plain decoding?", "one token"),
    _ask("What is a correction token?", "first rejected"),
    _ask("How can I get a real model?", "specchat list", "specchat pull"),
    _ask("How do I download another model?", "specchat"),
    _ask("I want a bigger model than this one.", "specchat pull"),
    _ask("What does specchat bench do?", "side by side"),
    _ask("What is the bench command for?", "side by side"),
    _ask("How do I use specchat doctor on my machine?", "machine"),
    _ask("tell me what specchat tune does", "best settings"),
    _ask("what is specchat derive for?", "out of a target"),
    _ask("How do I delete the model again?", "specchat rm"),
    _ask("How can I search my old conversations?", "specchat history"),
    _ask("What does specchat check prove?", "losslessly"),
    _ask("What do the exit codes of specchat mean?", "130"),
    _ask("how do i turn speculation off", "none"),
    _ask("Which draft length should I choose?", "--draft-length"),
    _ask("How can I print JSON with specchat ask?", "--json"),
    _ask("Count from 1 to 10, please.", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"),
    _ask("Can you count to five for me?", "1, 2, 3, 4, 5"),
    _ask("Please count down from ten to one.", "10, 9, 8, 7, 6, 5, 4, 3, 2, 1"),
    _ask("Count to 20 by twos, please.", "2, 4, 6, 8, 10, 12, 14, 16, 18, 20"),
    _ask("What is 7 + 5, please?", "12"),
    _ask("how much is 9 minus 4 then?", "5"),
    _ask("Can you compute 6 * 7?", "42"),
    _ask("Please list all the days of the week.", "Monday", "Sunday"),
    _ask("Could you name the planets?", "Mercury", "Neptune"),
    _ask("List three fruits as JSON.", "```json", "fruits"),
    _ask("Write a JSON object for Ada, age 36.", "Ada", "36"),
    _ask("Please tell me a short story about a dragon.", "dragon", "Once upon a time"),
    _ask("Can you write a story about a robot for my son?", "robot", "Once upon a time"),
    _ask("Tell me a story about an owl and a mouse.", "owl", "Once upon a time"),
    _ask("Write a Python function to add two numbers.", "def add"),
    _ask("I need Python code that checks if a number is prime.", "def is_prime"),
    _ask("Could you write a function that reverses a string, please?", "[::-1]"),
    _ask("Please explain to me why the sky is blue.", "scatters"),
    _ask("Which city is the capital of France, please?", "Paris"),
    _ask('Repeat: "The fox sleeps under the tree."', "The fox sleeps under the tree."),
    _ask("Put this in upper case: hello world", "HELLO WORLD"),
    _ask("Who painted the Mona Lisa?", "small demo model"),
    _ask("Explain general relativity in detail.", "small demo model"),
    _ask("Write me a cover letter for a job at a bank.", "small demo model"),
)
