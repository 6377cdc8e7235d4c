import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.zookeeper.AsyncCallback;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * ZooKeeper's Java client as a target of benchmarks/zookeeper.py.  Janino compiles this file at run time; it supports
 * neither lambdas nor generic type inference.
 *
 * It reads one experiment per line from stdin, tab-separated: connect string, root, number of znodes, data in hexadecimal,
 * kind (get, set or multi), window, batch size, checked znode (or "-").  It prints one JSON object per line: the seconds,
 * or the name of the error.
 */
public class ZooKeeperLoad {

    static final int SESSION_TIMEOUT_MS = 30000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String outcome;
            try {
                outcome = "{\"seconds\": " + new ZooKeeperLoad(line.split("\t")).run() + "}";
            } catch (KeeperException error) {
                outcome = "{\"error\": \"" + name(error.code().intValue()) + "\"}";
            } catch (OutOfMemoryError error) {
                outcome = "{\"error\": \"OutOfMemory\"}";
            }
            System.out.println(outcome);
            System.out.flush();
        }
    }

    /** Return the name of an error code, such as ConnectionLoss. */
    static String name(int code) {
        return KeeperException.create(KeeperException.Code.get(code)).getClass().getSimpleName().replace("Exception", "");
    }

    final String server;
    final String kind;
    final int window;
    final String check;
    final byte[] data;
    final String[] paths;
    final List batches = new ArrayList();
    ZooKeeper client;
    Semaphore free;
    volatile int error = 0;

    ZooKeeperLoad(String[] fields) {
        server = fields[0];
        paths = new String[Integer.parseInt(fields[2])];
        for (int number = 0; number < paths.length; number++) {
            paths[number] = fields[1] + "/" + number;
        }
        data = new byte[fields[3].length() / 2];
        for (int at = 0; at < data.length; at++) {
            data[at] = (byte) Integer.parseInt(fields[3].substring(2 * at, 2 * at + 2), 16);
        }
        kind = fields[4];
        window = Integer.parseInt(fields[5]);
        int size = Integer.parseInt(fields[6]);
        check = fields[7].equals("-") ? null : fields[7];
        for (int start = 0; kind.equals("multi") && start < paths.length; start += size) {
            batches.add(new int[] {start, Math.min(start + size, paths.length)});
        }
    }

    double run() throws Exception {
        final CountDownLatch connected = new CountDownLatch(1);
        client = new ZooKeeper(server, SESSION_TIMEOUT_MS, new Watcher() {
            public void process(WatchedEvent event) {
                connected.countDown();
            }
        });
        try {
            connected.await();
            long began = System.nanoTime();
            if (window == 1) {
                oneByOne();
            } else {
                pipelined();
            }
            return (System.nanoTime() - began) / 1e9;
        } finally {
            client.close();
        }
    }

    void oneByOne() throws Exception {
        int count = kind.equals("multi") ? batches.size() : paths.length;
        for (int number = 0; number < count; number++) {
            if (kind.equals("multi")) {
                client.multi(operations(number));
            } else if (kind.equals("get")) {
                client.getData(paths[number], false, new Stat());
            } else {
                client.setData(paths[number], data, -1);
            }
        }
    }

    void pipelined() throws Exception {
        free = new Semaphore(window);
        Answers answers = new Answers(this);
        int count = kind.equals("multi") ? batches.size() : paths.length;
        for (int number = 0; number < count && error == 0; number++) {
            free.acquire();
            if (kind.equals("multi")) {
                client.multi(operations(number), answers, null);
            } else if (kind.equals("get")) {
                client.getData(paths[number], false, answers, null);
            } else {
                client.setData(paths[number], data, -1, answers, null);
            }
        }
        free.acquire(window);
        if (error != 0) {
            throw KeeperException.create(KeeperException.Code.get(error));
        }
    }

    List operations(int number) {
        int[] batch = (int[]) batches.get(number);
        List operations = new ArrayList(batch[1] - batch[0] + 1);
        if (check != null) {
            operations.add(Op.check(check, 0));
        }
        for (int at = batch[0]; at < batch[1]; at++) {
            operations.add(Op.setData(paths[at], data, -1));
        }
        return operations;
    }

    /** Receives every response and frees its place in the window. */
    static class Answers implements AsyncCallback.DataCallback, AsyncCallback.StatCallback, AsyncCallback.MultiCallback {

        final ZooKeeperLoad load;

        Answers(ZooKeeperLoad load) {
            this.load = load;
        }

        void answered(int code) {
            if (code != 0) {
                load.error = code;
            }
            load.free.release();
        }

        public void processResult(int code, String path, Object context, byte[] data, Stat stat) {
            answered(code);
        }

        public void processResult(int code, String path, Object context, Stat stat) {
            answered(code);
        }

        public void processResult(int code, String path, Object context, List results) {
            answered(code);
        }
    }
}
