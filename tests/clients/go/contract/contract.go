// Package contract is what every client program does: see tests/clients/programs/contract.py.
package contract

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Pause between two records on the way through a kill: not all of them before it.
const Pause = time.Millisecond

// Task holds the arguments.
type Task struct {
	Bootstrap []string
	Topic     string
	Group     string
	Count     int
}

// Half is how many records are read before the group is left.
func (task Task) Half() int { return task.Count / 2 }

// Record is the key and the value of a record.
func Record(number int) ([]byte, []byte) {
	return []byte(fmt.Sprintf("k%d", number)), []byte(fmt.Sprintf("v%d", number))
}

// Login says who the program is; nothing of it is set where nobody asks.
type Login struct {
	Mechanism   string `json:"sasl.mechanism"`
	Username    string `json:"sasl.username"`
	Password    string `json:"sasl.password"`
	Authority   string `json:"ssl.ca.location"`
	Certificate string `json:"ssl.certificate.location"`
	Key         string `json:"ssl.key.location"`
}

// ReadLogin reads the login of the environment.
func ReadLogin() (login Login) {
	if text := os.Getenv("SMQ_TEST_LOGIN"); text != "" {
		Must(json.Unmarshal([]byte(text), &login))
	}
	return login
}

// TLS is how the broker's certificate is checked, and our own shown; nil without TLS.
func (login Login) TLS() *tls.Config {
	if login.Authority == "" {
		return nil
	}
	authority, err := os.ReadFile(login.Authority)
	Must(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		Must(errors.New("there is no certificate in " + login.Authority))
	}
	if login.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(login.Certificate, login.Key)
		Must(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// Reading collects what was read.
type Reading struct {
	Values []string
	Wrong  int
	seen   map[string]bool
}

// Take adds a record; header is the value of its header `n`, if that is its only one.
func (reading *Reading) Take(key, value []byte, headers int, header []byte) {
	text := string(value)
	if string(key) != "k"+strings.TrimPrefix(text, "v") || headers != 1 || string(header) != text {
		reading.Wrong++
	}
	if reading.seen == nil {
		reading.seen = map[string]bool{}
	}
	reading.seen[text] = true
	reading.Values = append(reading.Values, text)
}

// Different is how many different values were read.
func (reading *Reading) Different() int { return len(reading.seen) }

// Halfway tells that half of the records are acknowledged.
func Halfway() { fmt.Println("halfway") }

// ReportHalves ends `resume`.
func ReportHalves(first, second Reading) {
	report(map[string]any{"first": first.Values, "second": second.Values, "wrong": first.Wrong + second.Wrong})
}

// ReportAll ends `through-a-kill`.
func ReportAll(all Reading) {
	report(map[string]any{"values": all.Values, "wrong": all.Wrong})
}

func report(findings map[string]any) {
	line, err := json.Marshal(findings)
	Must(err)
	fmt.Println(string(line))
}

// Must ends the program with an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Run does what the arguments say.
func Run(modes map[string]func(Task)) {
	mode, ok := modes[os.Args[1]]
	if !ok {
		Must(fmt.Errorf("there is no mode %s", os.Args[1]))
	}
	count, err := strconv.Atoi(os.Args[5])
	Must(err)
	mode(Task{strings.Split(os.Args[2], ","), os.Args[3], os.Args[4], count})
}
