"""What the chat says of answers, their steps and their options: texts, no widgets."""
