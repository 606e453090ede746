import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoubleDocValuesField;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.LatLonDocValuesField;
import org.apache.lucene.document.LatLonPoint;
import org.apache.lucene.document.LongField;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.index.Term;
import org.apache.lucene.queries.function.FunctionScoreQuery;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.ConstantScoreQuery;
import org.apache.lucene.search.DoubleValues;
import org.apache.lucene.search.DoubleValuesSource;
import org.apache.lucene.search.FieldDoc;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.Sort;
import org.apache.lucene.search.SortField;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.FSDirectory;

/**
 * Ranked queries by Lucene, with the score and the corpus table of this project.
 *
 * <p>The words of a query are clauses of which one has to match. Each gives its own power of two, so the score of the
 * disjunction says exactly which of them an object has; the norm of an object, its place and its time are doc values.
 * "exact" sorts by the score as a double, and is what ids are compared by; "function" is a FunctionScoreQuery, whose
 * scores are floats; "plain" is Lucene as it comes: BM25, and the features for distance and recency.
 *
 * <p>Commands: {@code index OBJECTS FOLDER FEATURES}, {@code search FOLDER QUERIES WAY RESULTS}. Both print one line of numbers.
 */
public class LuceneBest {
    static final double EARTH_RADIUS_M = 6_371_008.8;
    static final double RADIANS = Math.PI / 180.0;
    static final int TIMES = 3;

    record Asked(
            double lon, double lat, double radius, int k, double alpha, long halfLife, long t, String[] words,
            long[] weights, double norm) {

        static Asked of(String line) {
            String[] parts = line.split("\t", -1);
            String[] words = parts[7].split(" ");
            long[] weights = new long[words.length];
            double asked = 0.0;
            for (int i = 0; i < words.length; i++) {
                String[] pair = words[i].split(":");
                words[i] = pair[0];
                weights[i] = Long.parseLong(pair[1]);
                asked += (double) weights[i] * weights[i];
            }
            return new Asked(
                    Double.parseDouble(parts[0]), Double.parseDouble(parts[1]), Double.parseDouble(parts[2]),
                    Integer.parseInt(parts[3]), Double.parseDouble(parts[4]), Long.parseLong(parts[5]),
                    Long.parseLong(parts[6]), words, weights, Math.sqrt(asked));
        }

        double distance(double x, double y) {
            double up = Math.sin((y * RADIANS - lat * RADIANS) * 0.5);
            double along = Math.sin((x - lon) * RADIANS * 0.5);
            double a = up * up + Math.cos(lat * RADIANS) * Math.cos(y * RADIANS) * (along * along);
            return 2.0 * EARTH_RADIUS_M * Math.asin(Math.sqrt(Math.min(1.0, a)));
        }

        /** R of Eqn 7; infinite beyond the radius. */
        double score(int mask, double x, double y, long time, long squares) {
            double d = distance(x, y);
            if (d > radius) {
                return Double.POSITIVE_INFINITY;
            }
            double part = d <= radius / 2.0 ? d / radius : (d - radius) / radius;
            double spatial = d >= radius ? 0.0 : d <= radius / 2.0 ? 1.0 - 2.0 * part * part : 2.0 * part * part;
            long dot = 0;
            for (int i = 0; i < weights.length; i++) {
                if ((mask >> i & 1) == 1) {
                    dot += weights[i] * weights[i];
                }
            }
            double textual = squares == 0 || norm == 0.0 ? 1.0 : Math.min(1.0, dot / (Math.sqrt((double) squares) * norm));
            long steps = Math.min(4096 * (t - time) / halfLife, 64 * 4096);
            double grown = Math.scalb(Math.pow(2.0, steps % 4096 / 4096.0), (int) (steps / 4096));
            return alpha * (1.0 - spatial) + grown * (1.0 - alpha) * (1.0 - textual);
        }
    }

    /** The score of an object; {@code rising} as Lucene wants it, the greatest the best. */
    static final class Score extends DoubleValuesSource {
        final Asked asked;
        final boolean rising;

        Score(Asked asked, boolean rising) {
            this.asked = asked;
            this.rising = rising;
        }

        @Override
        public DoubleValues getValues(LeafReaderContext context, DoubleValues scores) throws IOException {
            NumericDocValues lon = DocValues.getNumeric(context.reader(), "lon");
            NumericDocValues lat = DocValues.getNumeric(context.reader(), "lat");
            NumericDocValues time = DocValues.getNumeric(context.reader(), "time");
            NumericDocValues squares = DocValues.getNumeric(context.reader(), "squares");
            return new DoubleValues() {
                @Override
                public double doubleValue() throws IOException {
                    double found = asked.score(
                            (int) scores.doubleValue(), Double.longBitsToDouble(lon.longValue()),
                            Double.longBitsToDouble(lat.longValue()), time.longValue(), squares.longValue());
                    return rising ? 1.0 / (1.0 + found) : found;
                }

                @Override
                public boolean advanceExact(int doc) throws IOException {
                    return lon.advanceExact(doc) && lat.advanceExact(doc) && time.advanceExact(doc)
                            && squares.advanceExact(doc) && scores.advanceExact(doc);
                }
            };
        }

        @Override
        public boolean needsScores() {
            return true;
        }

        @Override
        public DoubleValuesSource rewrite(IndexSearcher searcher) {
            return this;
        }

        @Override
        public boolean isCacheable(LeafReaderContext context) {
            return false;
        }

        @Override
        public int hashCode() {
            return asked.hashCode();
        }

        @Override
        public boolean equals(Object other) {
            return this == other;
        }

        @Override
        public String toString() {
            return "score";
        }
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments[0].equals("index")) {
            index(Path.of(arguments[1]), Path.of(arguments[2]), arguments[3].equals("features"));
        } else {
            search(Path.of(arguments[1]), Path.of(arguments[2]), arguments[3], Path.of(arguments[4]));
        }
    }

    /** Lines are longitude, latitude, time, sum of squares, words; prints CPU seconds and bytes. "plain" needs features. */
    static void index(Path objects, Path folder, boolean features) throws IOException {
        long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer()).setRAMBufferSizeMB(256);
        try (FSDirectory directory = FSDirectory.open(folder);
                IndexWriter writer = new IndexWriter(directory, config);
                BufferedReader lines = Files.newBufferedReader(objects)) {
            long row = 0;
            for (String line; (line = lines.readLine()) != null; row++) {
                String[] parts = line.split("\t", -1);
                double lon = Double.parseDouble(parts[0]);
                double lat = Double.parseDouble(parts[1]);
                long time = Long.parseLong(parts[2]);
                Document document = new Document();
                document.add(new TextField("words", parts[4], Field.Store.NO));
                document.add(new LatLonPoint("place", lat, lon));
                document.add(new DoubleDocValuesField("lon", lon));
                document.add(new DoubleDocValuesField("lat", lat));
                document.add(new NumericDocValuesField("time", time));
                document.add(new NumericDocValuesField("squares", Long.parseLong(parts[3])));
                document.add(new NumericDocValuesField("row", row));
                if (features) {
                    document.add(new LatLonDocValuesField("place", lat, lon));
                    document.add(new LongField("when", time, Field.Store.NO));
                }
                writer.addDocument(document);
            }
            writer.commit();
            writer.forceMerge(1);
            writer.commit();
        }
        long spent = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - begun;
        long bytes = 0;
        try (FSDirectory directory = FSDirectory.open(folder)) {
            for (String name : directory.listAll()) {
                bytes += directory.fileLength(name);
            }
        }
        System.out.println(spent / 1e9 + " " + bytes);
    }

    /** Prints the CPU milliseconds of a query in the fastest of some passes; the results are rows, a line a query. */
    static void search(Path folder, Path queries, String way, Path results) throws IOException {
        List<Asked> asked = new ArrayList<>();
        for (String line : Files.readAllLines(queries)) {
            asked.add(Asked.of(line));
        }
        try (FSDirectory directory = FSDirectory.open(folder);
                DirectoryReader reader = DirectoryReader.open(directory);
                PrintWriter out = new PrintWriter(Files.newBufferedWriter(results))) {
            IndexSearcher searcher = new IndexSearcher(reader);
            searcher.setQueryCache(null);
            List<long[]> found = new ArrayList<>();
            long best = Long.MAX_VALUE;
            for (int again = 0; again < TIMES; again++) {
                found.clear();
                long begun = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
                for (Asked each : asked) {
                    found.add(rows(searcher, reader, each, way));
                }
                best = Math.min(best, ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - begun);
            }
            for (long[] rows : found) {
                StringBuilder line = new StringBuilder();
                for (long row : rows) {
                    line.append(line.isEmpty() ? "" : " ").append(row);
                }
                out.println(line);
            }
            System.out.println(best / 1e6 / asked.size());
        }
    }

    static long[] rows(IndexSearcher searcher, DirectoryReader reader, Asked asked, String way) throws IOException {
        BooleanQuery.Builder words = new BooleanQuery.Builder().setMinimumNumberShouldMatch(1);
        for (int i = 0; i < asked.words.length; i++) {
            Query term = new TermQuery(new Term("words", asked.words[i]));
            words.add(way.equals("plain") ? term : new BoostQuery(new ConstantScoreQuery(term), 1 << i), Occur.SHOULD);
        }
        // the points of the index are rounded to centimetres; the score has the exact border
        double wide = asked.radius * 1.000001 + 1.0;
        words.add(LatLonPoint.newDistanceQuery("place", asked.lat, asked.lon, wide), Occur.FILTER);
        ScoreDoc[] found;
        switch (way) {
            case "exact" -> {
                SortField later = new SortField("time", SortField.Type.LONG, true);
                Sort sort = new Sort(new Score(asked, false).getSortField(false), later, SortField.FIELD_DOC);
                found = searcher.search(words.build(), asked.k, sort).scoreDocs;
            }
            case "function" -> {
                Query query = new FunctionScoreQuery(words.build(), new Score(asked, true));
                found = searcher.search(query, asked.k).scoreDocs;
            }
            default -> {
                BooleanQuery.Builder query = new BooleanQuery.Builder().add(words.build(), Occur.MUST);
                query.add(
                        LatLonPoint.newDistanceFeatureQuery("place", 1.0f, asked.lat, asked.lon, asked.radius / 2.0),
                        Occur.SHOULD);
                query.add(
                        LongField.newDistanceFeatureQuery("when", 1.0f, asked.t, asked.halfLife), Occur.SHOULD);
                found = searcher.search(query.build(), asked.k).scoreDocs;
            }
        }
        List<Long> rows = new ArrayList<>();
        for (ScoreDoc each : found) {
            boolean beyond = each instanceof FieldDoc field && (double) field.fields[0] == Double.POSITIVE_INFINITY;
            if (!beyond && (way.equals("exact") || each.score > 0.0f)) {
                NumericDocValues row = row(reader, each.doc);
                rows.add(row.longValue());
            }
        }
        return rows.stream().mapToLong(Long::longValue).toArray();
    }

    static NumericDocValues row(DirectoryReader reader, int doc) throws IOException {
        for (LeafReaderContext leaf : reader.leaves()) {
            if (doc >= leaf.docBase && doc < leaf.docBase + leaf.reader().maxDoc()) {
                NumericDocValues rows = DocValues.getNumeric(leaf.reader(), "row");
                rows.advanceExact(doc - leaf.docBase);
                return rows;
            }
        }
        throw new IllegalStateException("no segment has document " + doc);
    }
}
