"""kcat: the program itself, as a shell script would call it."""

import subprocess

from tests.clients.programs.contract import Task, is_wrong, login, record, report, run


def kcat(task: Task, *arguments: str, text: str = "") -> str:
    properties = (word for name, value in login().items() for word in ("-X", f"{name}={value}"))
    done = subprocess.run(
        ["kcat", "-b", task.bootstrap, *properties, *arguments],
        input=text,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    return done.stdout


def read(task: Task, count: int) -> tuple[list[str], int]:
    """kcat commits what it has read when it leaves the group."""
    reading = ["-G", task.group, "-c", str(count), "-X", "auto.offset.reset=earliest"]
    reading += ["-X", "isolation.level=read_committed"]
    lines = kcat(task, *reading, "-q", "-f", "%k %s %h\\n", task.topic).splitlines()
    values, wrong = [], 0
    for line in lines:
        key, value, header = line.split(" ")
        name, _, content = header.partition("=")
        values.append(value)
        wrong += is_wrong(key.encode(), value.encode(), [(name, content.encode())])
    return values, wrong


def resume(task: Task) -> None:
    """A header is given for a whole call, so there is a call for each record."""
    for number in range(task.records):
        key, value = (part.decode() for part in record(number))
        sending = ["-P", "-t", task.topic, "-z", "gzip", "-K", ":", "-H", f"n={value}"]
        kcat(task, *sending, text=f"{key}:{value}\n")
    first, wrong_of_first = read(task, task.half)
    second, wrong_of_second = read(task, task.records - task.half)
    report(first=first, second=second, wrong=wrong_of_first + wrong_of_second)


def only_read(task: Task) -> None:
    values, wrong = read(task, task.records)
    report(values=values, wrong=wrong)


if __name__ == "__main__":
    run(resume=resume, read=only_read)
